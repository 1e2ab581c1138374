// log(phi(q) . phi(k)) of the feature maps, up to a constant per query: what distillation and
// analysis normalise over the keys.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace hedgerow::nn {

// log of the features of y = x W + b [B,H,N,E] -> [B,H,N,F], for maps whose features are positive:
// exp, softmax, softmax_joint, elu, exp_half and, with x, performer.
at::Tensor hedgehog_log_features(const std::string& map, const at::Tensor& y, const at::Tensor& x);

// log sum_f exp(a_f + b_f) - max_f a_f: a [B,H,T,F], b [B,Hkv,S,F] -> [B,H,T,S]. A matrix product
// of exponentials, with the pairs whose sum is too small for it computed one by one; finite and
// differentiable at any finite input.
at::Tensor log_dot_exp(const at::Tensor& a, const at::Tensor& b);

// log(softmax over visible keys) of the same; -inf elsewhere.
at::Tensor log_normalised_dot_exp(const at::Tensor& a, const at::Tensor& b,
                                  const std::optional<at::Tensor>& visible);

}  // namespace hedgerow::nn
