// y = (x - mean) / sqrt(var + eps) * weight + bias over the last dimension.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>

namespace hedgerow::nn {

class LayerNorm : public torch::nn::Module {
 public:
  LayerNorm(int64_t width, double eps);
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight, bias;  // [width]: ones and zeros at the start

 private:
  double eps_;
};

}  // namespace hedgerow::nn
