// Named torch tensors from and to safetensors files.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "formats/checkpoint.h"

namespace hedgerow::io {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// The torch dtype of a stored one; none for types that torch tensors of this project do not have.
std::optional<at::ScalarType> scalar_type(formats::Dtype dtype);

// A copy of a stored tensor in its own dtype. Throws Error, naming it, for such a type.
at::Tensor to_tensor(const std::string& name, const formats::TensorView& view);

// Names under which a file may hold one tensor of a model.
struct TensorSource {
  std::vector<std::string> names;  // one of these, and not two; the first is how errors call it
  std::vector<std::string> ties;   // else one of these: the other side of a tie. Read or ignored
};

struct LoadRules {
  std::function<TensorSource(const std::string& target)> source;
  // Tensors of a file that a model may leave unread: buffers, heads that it has not.
  std::function<bool(const std::string& stored)> may_ignore;
};

// Copies stored tensors into `targets`, converting floating-point dtypes (float64, float32,
// float16, bfloat16). Throws one Error, starting with `where`, that lists everything wrong: missing
// and unexpected tensors, tensors stored twice, shapes (both) and dtypes that do not fit; then no
// target has changed.
void load_tensors(const formats::Checkpoint& checkpoint, const std::string& where,
                  const std::vector<NamedTensor>& targets, const LoadRules& rules);

// Writes tensors, in their own dtypes, to one file that appears whole or not at all.
void save_tensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                  const formats::Metadata& metadata = {});

}  // namespace hedgerow::io
