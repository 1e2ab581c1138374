// The definition of every map, in ATen operators.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>

#include "ops/common/composite_gradient.h"
#include "ops/common/dispatch.h"
#include "ops/hedgehog_features/hedgehog_features.h"

namespace hedgerow::ops {

using kernels::FeatureMap;

at::Tensor project_composite(const at::Tensor& x, const at::Tensor& weight, const OptTensor& bias) {
  const at::ScalarType dtype = accumulate_dtype(x.scalar_type());
  const at::Tensor y = at::matmul(x.to(dtype), weight.to(dtype));  // [B,H,S,D] [H,D,E] -> [B,H,S,E]
  return bias ? y + bias->to(dtype).unsqueeze(1) : y;
}

at::Tensor features_composite(const at::Tensor& x, const at::Tensor& weight, const OptTensor& bias,
                              FeatureMap map) {
  const at::Tensor y = project_composite(x, weight, bias);
  const int64_t width = y.size(3);
  switch (map) {
    case FeatureMap::kExp:
      return at::cat({y.exp(), y.neg().exp()}, -1);
    case FeatureMap::kSoftmax:
      return at::cat({y.softmax(-1), y.neg().softmax(-1)}, -1);
    case FeatureMap::kSoftmaxJoint:
      return at::cat({y * 2, y * -2}, -1).softmax(-1);
    case FeatureMap::kElu:
      return at::elu(y) + 1;
    case FeatureMap::kRelu:
      return at::relu(y);
    case FeatureMap::kTaylor: {
      const at::Tensor pairs =
          (y.unsqueeze(-1) * y.unsqueeze(-2)).flatten(-2) * std::sqrt(0.5);  // [B,H,S,E*E]
      return at::cat({at::ones_like(y.narrow(-1, 0, 1)), y, pairs}, -1);
    }
    case FeatureMap::kExpHalf:
      return y.exp();
    case FeatureMap::kPerformer: {
      const at::Tensor half_norm = x.to(y.scalar_type()).square().sum(-1, true) * 0.5;  // [B,H,S,1]
      return (y - half_norm).exp() / std::sqrt(static_cast<double>(width));
    }
  }
  TORCH_INTERNAL_ASSERT(false);
}

FeatureGrads hedgehog_features_backward_composite(const at::Tensor& grad, const at::Tensor& x,
                                                  const at::Tensor& weight, const OptTensor& bias,
                                                  std::string_view variant) {
  const FeatureMap map = parse_feature_map("hedgehog_features_backward", variant);
  const auto forward = [&](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
    return {features_composite(in[0], in[1], in[2].defined() ? OptTensor(in[2]) : OptTensor(), map)
                .to(x.scalar_type())};
  };
  const auto grads = composite_gradient(forward, {x, weight, bias.value_or(at::Tensor())},
                                        {true, true, bias.has_value()}, {grad});
  return {or_zeros(grads[0], x), or_zeros(grads[1], weight),
          bias ? or_zeros(grads[2], *bias) : at::empty({0}, x.options().requires_grad(false))};
}

namespace {

at::Tensor hedgehog_features_any(const at::Tensor& x, const at::Tensor& weight,
                                 const OptTensor& bias, std::string_view variant) {
  check_hedgehog_features("hedgehog_features", x, weight, bias, variant);
  return features_composite(x, weight, bias, parse_feature_map("hedgehog_features", variant))
      .to(x.scalar_type());
}

FeatureGrads hedgehog_features_backward_any(const at::Tensor& grad, const at::Tensor& x,
                                            const at::Tensor& weight, const OptTensor& bias,
                                            std::string_view variant) {
  check_hedgehog_features("hedgehog_features_backward", x, weight, bias, variant);
  return hedgehog_features_backward_composite(grad, x, weight, bias, variant);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CompositeExplicitAutograd, m) {
  m.impl("hedgehog_features", hedgerow::ops::hedgehog_features_any);
  m.impl("hedgehog_features_backward", hedgerow::ops::hedgehog_features_backward_any);
}
