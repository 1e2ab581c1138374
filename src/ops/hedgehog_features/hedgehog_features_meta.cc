#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/hedgehog_features/hedgehog_features.h"

namespace hedgerow::ops {
namespace {

at::Tensor hedgehog_features_meta(const at::Tensor& x, const at::Tensor& weight,
                                  const OptTensor& bias, std::string_view variant) {
  check_hedgehog_features("hedgehog_features", x, weight, bias, variant);
  const auto map = parse_feature_map("hedgehog_features", variant);
  return at::empty_symint(
      {x.sym_size(0), x.sym_size(1), x.sym_size(2), feature_width(map, weight.sym_size(2))},
      x.options());
}

FeatureGrads hedgehog_features_backward_meta(const at::Tensor& grad, const at::Tensor& x,
                                             const at::Tensor& weight, const OptTensor& bias,
                                             std::string_view variant) {
  check_hedgehog_features("hedgehog_features_backward", x, weight, bias, variant);
  const auto like = [](const at::Tensor& t) {
    return at::empty_symint(t.sym_sizes(), t.options());
  };
  return {like(x), like(weight), bias ? like(*bias) : at::empty({0}, x.options())};
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Meta, m) {
  m.impl("hedgehog_features", hedgerow::ops::hedgehog_features_meta);
  m.impl("hedgehog_features_backward", hedgerow::ops::hedgehog_features_backward_meta);
}
