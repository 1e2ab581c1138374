#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/common/dispatch.h"
#include "ops/common/path.h"
#include "ops/hedgehog_features/hedgehog_features.h"

namespace hedgerow::ops {
namespace {

at::Tensor hedgehog_features_cpu(const at::Tensor& x_in, const at::Tensor& weight_in,
                                 const OptTensor& bias_in, std::string_view variant) {
  check_hedgehog_features("hedgehog_features", x_in, weight_in, bias_in, variant);
  const kernels::FeatureMap map = parse_feature_map("hedgehog_features", variant);
  if (!use_fast("hedgehog_features", true, "")) {
    return features_composite(x_in, weight_in, bias_in, map).to(x_in.scalar_type());
  }
  const at::Tensor x = rows_contiguous(x_in), weight = weight_in.contiguous();
  const OptTensor bias = contiguous(bias_in);
  kernels::FeaturesForward p;
  p.dtype = kernel_dtype(x.scalar_type());
  p.map = map;
  p.batch = x.size(0);
  p.heads = x.size(1);
  p.rows = x.size(2);
  p.dim = x.size(3);
  p.width = weight.size(2);
  p.x = const_view(x);
  p.weight = weight.const_data_ptr();
  p.bias = const_data(bias);
  const at::Tensor phi =
      fresh({p.batch, p.heads, p.rows, kernels::feature_width(map, p.width)}, x.options());
  p.phi = mut_view(phi);
  kernels::hedgehog_features_forward(p);
  return phi;
}

FeatureGrads hedgehog_features_backward_cpu(const at::Tensor& grad_in, const at::Tensor& x_in,
                                            const at::Tensor& weight_in, const OptTensor& bias_in,
                                            std::string_view variant) {
  const char* op = "hedgehog_features_backward";
  check_hedgehog_features(op, x_in, weight_in, bias_in, variant);
  if (!use_fast(op, true, ""))
    return hedgehog_features_backward_composite(grad_in, x_in, weight_in, bias_in, variant);
  const at::Tensor grad = rows_contiguous(grad_in), x = rows_contiguous(x_in),
                   weight = weight_in.contiguous();
  const OptTensor bias = contiguous(bias_in);
  kernels::FeaturesBackward p;
  p.dtype = kernel_dtype(x.scalar_type());
  p.map = parse_feature_map(op, variant);
  p.batch = x.size(0);
  p.heads = x.size(1);
  p.rows = x.size(2);
  p.dim = x.size(3);
  p.width = weight.size(2);
  check_inputs(op, {{"grad", grad}, {"x", x}});
  check_shape(op, {"grad", grad},
              {p.batch, p.heads, p.rows, kernels::feature_width(p.map, p.width)}, "[B, H, S, F]");
  p.x = const_view(x);
  p.weight = weight.const_data_ptr();
  p.bias = const_data(bias);
  p.grad_phi = const_view(grad);
  const at::Tensor grad_x = fresh(x.sizes(), x.options()),
                   grad_weight = fresh(weight.sizes(), x.options());
  const at::Tensor grad_bias =
      bias ? fresh(bias->sizes(), x.options()) : at::empty({0}, x.options());
  p.grad_x = mut_view(grad_x);
  p.grad_weight = grad_weight.mutable_data_ptr();
  if (bias) p.grad_bias = grad_bias.mutable_data_ptr();
  kernels::hedgehog_features_backward(p);
  return {grad_x, grad_weight, grad_bias};
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CPU, m) {
  m.impl("hedgehog_features", hedgerow::ops::hedgehog_features_cpu);
  m.impl("hedgehog_features_backward", hedgerow::ops::hedgehog_features_backward_cpu);
}
