#include "nn/linear.h"

#include <cmath>

#include "hedgerow/error.h"
#include "nn/precision.h"

namespace hedgerow::nn {

namespace {

at::Tensor multiply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (!LinearInBfloat16::enabled() || x.scalar_type() != at::kFloat)
    return at::linear(x, weight, bias);
  const at::Tensor y = at::linear(x.to(at::kBFloat16), weight.to(at::kBFloat16)).to(at::kFloat);
  return bias.defined() ? y + bias : y;
}

}  // namespace

Linear::Linear(int64_t in, int64_t out, bool with_bias) {
  weight = register_parameter("weight", at::zeros({out, in}));
  if (with_bias) bias = register_parameter("bias", at::zeros({out}));
}

at::Tensor Linear::forward(const at::Tensor& x) {
  const at::Tensor y = multiply(x, weight, bias);
  if (!has_lora()) return y;
  const at::Tensor update = at::linear(at::linear(x, lora_a_), lora_b_);
  return y + lora_scale_ * update;
}

void Linear::add_lora(int64_t rank, double alpha) {
  HEDGEROW_CHECK(rank > 0, "lora: the rank must be positive; got ", rank);
  HEDGEROW_CHECK(!has_lora(), "lora: this layer has an update already");
  const int64_t out = weight.size(0), in = weight.size(1);
  lora_a_ =
      register_parameter("lora_a", at::randn({rank, in}, weight.options().requires_grad(false)) /
                                       std::sqrt(static_cast<double>(in)));
  lora_b_ =
      register_parameter("lora_b", at::zeros({out, rank}, weight.options().requires_grad(false)));
  lora_scale_ = alpha / static_cast<double>(rank);
  weight.requires_grad_(false);
  if (bias.defined()) bias.requires_grad_(false);
}

void Linear::merge_lora() {
  if (!has_lora()) return;
  {
    const at::NoGradGuard no_grad;
    weight.add_(at::mm(lora_b_, lora_a_), lora_scale_);
  }
  parameters_.erase("lora_a");
  parameters_.erase("lora_b");
  lora_a_ = lora_b_ = at::Tensor();
  weight.requires_grad_(true);
  if (bias.defined()) bias.requires_grad_(true);
}

}  // namespace hedgerow::nn
