#include "nn/layer_norm.h"

namespace hedgerow::nn {

LayerNorm::LayerNorm(int64_t width, double eps) : eps_(eps) {
  weight = register_parameter("weight", at::ones({width}));
  bias = register_parameter("bias", at::zeros({width}));
}

at::Tensor LayerNorm::forward(const at::Tensor& x) {
  return at::layer_norm(x, weight.sizes(), weight, bias, eps_);
}

}  // namespace hedgerow::nn
