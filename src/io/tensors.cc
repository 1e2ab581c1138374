#include "io/tensors.h"

#include <ATen/ATen.h>

#include <cstring>
#include <map>

#include "hedgerow/error.h"

namespace hedgerow::io {
namespace {

struct DtypePair {
  formats::Dtype stored;
  at::ScalarType ours;
};

constexpr DtypePair kDtypes[] = {
    {formats::Dtype::kF64, at::kDouble}, {formats::Dtype::kF32, at::kFloat},
    {formats::Dtype::kF16, at::kHalf},   {formats::Dtype::kBF16, at::kBFloat16},
    {formats::Dtype::kI64, at::kLong},   {formats::Dtype::kI32, at::kInt},
    {formats::Dtype::kI16, at::kShort},  {formats::Dtype::kI8, at::kChar},
    {formats::Dtype::kU8, at::kByte},    {formats::Dtype::kBool, at::kBool},
};

formats::Dtype stored_dtype(const NamedTensor& t) {
  for (const DtypePair& pair : kDtypes) {
    if (pair.ours == t.tensor.scalar_type()) return pair.stored;
  }
  throw Error(concat("save: tensor ", t.name, " has a dtype that safetensors has not; got ",
                     c10::toString(t.tensor.scalar_type())));
}

}  // namespace

std::optional<at::ScalarType> scalar_type(formats::Dtype dtype) {
  for (const DtypePair& pair : kDtypes) {
    if (pair.stored == dtype) return pair.ours;
  }
  return std::nullopt;
}

at::Tensor to_tensor(const std::string& name, const formats::TensorView& view) {
  const std::optional<at::ScalarType> dtype = scalar_type(view.dtype);
  HEDGEROW_CHECK(dtype, "load: tensor ", name, " has a dtype that cannot be read here; got ",
                 formats::dtype_name(view.dtype));
  at::Tensor tensor = at::empty(view.shape, *dtype);
  if (view.num_bytes > 0) {
    std::memcpy(tensor.data_ptr(), view.data, static_cast<size_t>(view.num_bytes));
  }
  return tensor;
}

void save_tensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                  const formats::Metadata& metadata) {
  std::map<std::string, at::Tensor> by_name;
  std::vector<formats::TensorSpec> specs;
  for (const NamedTensor& t : tensors) {
    by_name[t.name] = t.tensor.detach().to(at::kCPU).contiguous();
    specs.push_back({t.name, stored_dtype(t), t.tensor.sizes().vec()});
  }
  formats::write_safetensors(path, std::move(specs), metadata,
                             [&](const formats::TensorSpec& spec) -> const void* {
                               return by_name.at(spec.name).const_data_ptr();
                             });
}

}  // namespace hedgerow::io
