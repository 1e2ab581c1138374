// Rows of weights in the log domain, and products of grouped heads: what mixers share.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "nn/mixer.h"

namespace hedgerow::nn {

// a [B,H,T,F] . b [B,Hkv,S,F] over F -> [B,H,T,S]; head h of a meets head h / (H / Hkv) of b. No
// copy of b is made.
at::Tensor grouped_matmul(const at::Tensor& a, const at::Tensor& b);

// Its gradients for a and b.
std::pair<at::Tensor, at::Tensor> grouped_matmul_backward(const at::Tensor& gradient,
                                                          const at::Tensor& a, const at::Tensor& b);

// log(softmax) of scores [B,H,T,S] over the visible keys; -inf elsewhere, also in rows that see no
// key. Gradients of excluded entries and of such rows are zero.
at::Tensor log_normalise(const at::Tensor& scores, const std::optional<at::Tensor>& visible);

// log(p + floor) of p >= 0 [B,H,T,S]; the floor is 1e-6 of the row's mean over visible keys. A row
// of zeros becomes uniform.
at::Tensor log_with_floor(const at::Tensor& p, const std::optional<at::Tensor>& visible);

// Both: what log_weights() is of a mechanism whose weights p [B,H,T,S] may be zero.
at::Tensor log_of_weights(const at::Tensor& p, const AttentionMask& mask);

}  // namespace hedgerow::nn
