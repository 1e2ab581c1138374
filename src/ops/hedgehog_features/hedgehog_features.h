// Hedgehog feature maps: what the files of this folder, and hedgehog_attention, share. Contract:
// hedgerow/ops.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <tuple>

#include "hedgerow/kernels/linear.h"
#include "ops/common/checks.h"

namespace hedgerow::ops {

// The map of this name; an error that lists all names.
kernels::FeatureMap parse_feature_map(const char* op, std::string_view variant);

// F of a map of width E.
c10::SymInt feature_width(kernels::FeatureMap map, const c10::SymInt& width);

// weight [H,D,E] and bias [H,E] fit the heads and width of x [B,H,S,D].
void check_map(const char* op, Named x, Named weight, const char* bias_name, const OptTensor& bias);
void check_hedgehog_features(const char* op, const at::Tensor& x, const at::Tensor& weight,
                             const OptTensor& bias, std::string_view variant);

// y [B,H,S,E] = x W + b, in the accumulation dtype.
at::Tensor project_composite(const at::Tensor& x, const at::Tensor& weight, const OptTensor& bias);

// phi [B,H,S,F] in the accumulation dtype.
at::Tensor features_composite(const at::Tensor& x, const at::Tensor& weight, const OptTensor& bias,
                              kernels::FeatureMap map);

// (grad x, grad weight, grad bias; the last of size [0] without a bias).
using FeatureGrads = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
FeatureGrads hedgehog_features_backward_composite(const at::Tensor& grad, const at::Tensor& x,
                                                  const at::Tensor& weight, const OptTensor& bias,
                                                  std::string_view variant);
FeatureGrads hedgehog_features_backward(const at::Tensor& grad, const at::Tensor& x,
                                        const at::Tensor& weight, const OptTensor& bias,
                                        std::string_view variant);

}  // namespace hedgerow::ops
