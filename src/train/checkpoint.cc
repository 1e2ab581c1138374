#include "train/checkpoint.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "formats/json.h"
#include "formats/safetensors.h"
#include "hedgerow/error.h"

namespace hedgerow::train {
namespace {

constexpr const char* kFileName = "state.safetensors";
constexpr const char* kStateKey = "state";

std::string file_of(const std::string& folder) {
  return (std::filesystem::path(folder) / kFileName).string();
}

formats::Dtype dtype_of(const std::string& name, const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return formats::Dtype::kF32;
    case at::kDouble:
      return formats::Dtype::kF64;
    case at::kBFloat16:
      return formats::Dtype::kBF16;
    case at::kLong:
      return formats::Dtype::kI64;
    default:
      throw Error(concat("checkpoint: ", name, " must be float32, float64, bfloat16 or int64; got ",
                         c10::toString(tensor.scalar_type())));
  }
}

RunState parse_state(const formats::SafetensorsFile& file) {
  const auto found = file.metadata().find(kStateKey);
  HEDGEROW_CHECK(found != file.metadata().end(), file.path(), ": a checkpoint must have the key `",
                 kStateKey, "` in its metadata");
  const formats::Json json = formats::parse_json(found->second, file.path());
  const auto number = [&](const char* key) {
    const formats::Json* value = formats::find_member(json, key);
    HEDGEROW_CHECK(value != nullptr && value->is_number(), file.path(), ": `", key,
                   "` must be a number");
    return *value;
  };
  RunState state;
  const formats::Json* stage = formats::find_member(json, "stage");
  HEDGEROW_CHECK(stage != nullptr && stage->is_string(), file.path(), ": `stage` must be a text");
  state.stage = stage->get<std::string>();
  state.step = number("step").get<int64_t>();
  state.time_s = number("time_s").get<double>();
  state.log_bytes = number("log_bytes").get<int64_t>();
  state.best_loss = number("best_loss").get<double>();
  return state;
}

}  // namespace

void save_checkpoint(const std::string& folder, const RunState& state,
                     const NamedTensors& tensors) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw Failure(concat("checkpoint: cannot make the folder ", folder, ": ", error.message()));
  const formats::Json json = {{"stage", state.stage},
                              {"step", state.step},
                              {"time_s", state.time_s},
                              {"log_bytes", state.log_bytes},
                              {"best_loss", std::min(state.best_loss, 1e300)}};
  std::vector<formats::TensorSpec> specs;
  std::map<std::string, at::Tensor> values;
  for (const auto& [name, tensor] : tensors) {
    specs.push_back({name, dtype_of(name, tensor), tensor.sizes().vec()});
    values[name] = tensor.detach().contiguous();
  }
  formats::write_safetensors(
      file_of(folder), specs, {{kStateKey, formats::dump_json(json)}},
      [&](const formats::TensorSpec& spec) { return values.at(spec.name).const_data_ptr(); });
}

bool has_checkpoint(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::exists(file_of(folder), ignored);
}

RunState load_checkpoint(const std::string& folder, const std::string& stage,
                         const NamedTensors& tensors) {
  const formats::SafetensorsFile file = formats::SafetensorsFile::open(file_of(folder));
  const RunState state = parse_state(file);
  HEDGEROW_CHECK(state.stage == stage, file.path(), ": the checkpoint must be of stage ", stage,
                 "; got ", state.stage);
  HEDGEROW_CHECK(file.tensors().size() == tensors.size(), file.path(),
                 ": the checkpoint must have ", tensors.size(), " tensors; got ",
                 file.tensors().size());
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) {
    const auto found = file.tensors().find(name);
    HEDGEROW_CHECK(found != file.tensors().end(), file.path(), ": the checkpoint lacks ", name);
    const formats::TensorView& view = found->second;
    HEDGEROW_CHECK(view.dtype == dtype_of(name, tensor) && view.shape == tensor.sizes().vec(),
                   file.path(), ": ", name, " must be ", formats::shape_text(tensor.sizes().vec()),
                   " as in the run; got ", formats::shape_text(view.shape));
    at::Tensor target = tensor.detach();
    if (target.is_contiguous()) {
      std::memcpy(target.mutable_data_ptr(), view.data, view.num_bytes);
    } else {
      at::Tensor copy = target.contiguous();
      std::memcpy(copy.mutable_data_ptr(), view.data, view.num_bytes);
      target.copy_(copy);
    }
  }
  return state;
}

RunState read_checkpoint_state(const std::string& folder) {
  return parse_state(formats::SafetensorsFile::open(file_of(folder)));
}

}  // namespace hedgerow::train
