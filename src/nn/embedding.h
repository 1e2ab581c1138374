// Rows of a table: ids [...] -> [..., width].
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>

namespace hedgerow::nn {

class Embedding : public torch::nn::Module {
 public:
  // Zeros, until they are loaded or set.
  Embedding(int64_t rows, int64_t width);
  // The ids must be in [0, rows): the caller checks.
  at::Tensor forward(const at::Tensor& ids);

  at::Tensor weight;  // [rows,width]
};

}  // namespace hedgerow::nn
