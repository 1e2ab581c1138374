#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "hedgerow/ops.h"
#include "ops/common/composite_gradient.h"
#include "ops/common/dispatch.h"
#include "ops/common/path.h"
#include "ops/hedgehog_features/hedgehog_features.h"

namespace hedgerow::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct HedgehogFeatures : torch::autograd::Function<HedgehogFeatures> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const OptTensor& bias, std::string variant) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({x, weight, bias.value_or(at::Tensor())});
    ctx->saved_data["variant"] = variant;
    return hedgehog_features(x, weight, bias, variant);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const OptTensor bias = optional(saved[2]);
    const auto [grad_x, grad_weight, grad_bias] = hedgehog_features_backward(
        grads[0], saved[0], saved[1], bias, ctx->saved_data["variant"].toStringRef());
    return {grad_x, grad_weight, bias ? grad_bias : at::Tensor(), {}};
  }
};

at::Tensor hedgehog_features_autograd(const at::Tensor& x, const at::Tensor& weight,
                                      const OptTensor& bias, std::string_view variant) {
  const char* op = "hedgehog_features";
  check_hedgehog_features(op, x, weight, bias, variant);
  if (!records_gradient({x, weight}, {bias})) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return hedgehog_features(x, weight, bias, variant);
  }
  if (!use_fast(op, on_kernel_device(x), "a device without a kernel"))
    return features_composite(x, weight, bias, parse_feature_map(op, variant)).to(x.scalar_type());
  return HedgehogFeatures::apply(x, weight, bias, std::string(variant));
}

FeatureGrads hedgehog_features_backward_autograd(const at::Tensor& grad, const at::Tensor& x,
                                                 const at::Tensor& weight, const OptTensor& bias,
                                                 std::string_view variant) {
  if (records_gradient({grad, x, weight}, {bias}))
    return hedgehog_features_backward_composite(grad, x, weight, bias, variant);
  at::AutoDispatchBelowADInplaceOrView guard;
  return hedgehog_features_backward(grad, x, weight, bias, variant);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Autograd, m) {
  m.impl("hedgehog_features", hedgerow::ops::hedgehog_features_autograd);
  m.impl("hedgehog_features_backward", hedgerow::ops::hedgehog_features_backward_autograd);
}
