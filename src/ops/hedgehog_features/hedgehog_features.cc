#include "ops/hedgehog_features/hedgehog_features.h"

#include <torch/library.h>

#include "hedgerow/ops.h"
#include "ops/common/dispatch.h"

namespace hedgerow::ops {

kernels::FeatureMap parse_feature_map(const char* op, std::string_view variant) {
  const auto map = kernels::find_feature_map(variant);
  HEDGEROW_OP_CHECK(op, map.has_value(), "variant must be one of ", kernels::feature_map_names(),
                    "; got \"", std::string(variant), "\"");
  return *map;
}

c10::SymInt feature_width(kernels::FeatureMap map, const c10::SymInt& width) {
  switch (map) {
    case kernels::FeatureMap::kExp:
    case kernels::FeatureMap::kSoftmax:
    case kernels::FeatureMap::kSoftmaxJoint:
      return width * 2;
    case kernels::FeatureMap::kTaylor:
      return width * width + width + 1;
    default:
      return width;
  }
}

void check_map(const char* op, Named x, Named weight, const char* bias_name,
               const OptTensor& bias) {
  check_rank(op, weight, 3, "[H, D, E]");
  const c10::SymInt heads = x.tensor.sym_size(1), dim = x.tensor.sym_size(3),
                    width = weight.tensor.sym_size(2);
  HEDGEROW_OP_CHECK(op, weight.tensor.sym_size(0) == heads && weight.tensor.sym_size(1) == dim,
                    weight.name, " must be [H, D, E] with the heads and width of ", x.name,
                    "; got ", weight.name, " shape ", shape_text(weight.tensor), " and ", x.name,
                    " shape ", shape_text(x.tensor));
  HEDGEROW_OP_CHECK(op, width >= 1, weight.name, " must have E >= 1; got shape ",
                    shape_text(weight.tensor));
  if (!bias) return;
  check_inputs(op, {x, {bias_name, *bias}});
  check_shape(op, {bias_name, *bias}, {heads, width}, "[H, E]");
}

void check_hedgehog_features(const char* op, const at::Tensor& x, const at::Tensor& weight,
                             const OptTensor& bias, std::string_view variant) {
  parse_feature_map(op, variant);
  check_inputs(op, {{"x", x}, {"weight", weight}});
  check_rank(op, {"x", x}, 4, "[B, H, S, D]");
  check_map(op, {"x", x}, {"weight", weight}, "bias", bias);
}

at::Tensor hedgehog_features(const at::Tensor& x, const at::Tensor& weight, const OptTensor& bias,
                             std::string_view variant) {
  static const auto op = find_op<decltype(hedgehog_features)>("hedgerow::hedgehog_features");
  return op.call(x, weight, bias, variant);
}

FeatureGrads hedgehog_features_backward(const at::Tensor& grad, const at::Tensor& x,
                                        const at::Tensor& weight, const OptTensor& bias,
                                        std::string_view variant) {
  static const auto op =
      find_op<decltype(hedgehog_features_backward)>("hedgerow::hedgehog_features_backward");
  return op.call(grad, x, weight, bias, variant);
}

}  // namespace hedgerow::ops

TORCH_LIBRARY_FRAGMENT(hedgerow, m) {
  m.def(
      "hedgehog_features(Tensor x, Tensor weight, Tensor? bias=None, str variant=\"exp\") -> "
      "Tensor",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "hedgehog_features_backward(Tensor grad, Tensor x, Tensor weight, Tensor? bias, str variant) "
      "-> "
      "(Tensor grad_x, Tensor grad_weight, Tensor grad_bias)",
      {at::Tag::pt2_compliant_tag});
}
