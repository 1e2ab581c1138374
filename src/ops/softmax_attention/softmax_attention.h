// Softmax attention: what its files share. Contract: hedgerow/ops.h. Folder: schema, checks and C++
// entry (.cc), CPU, Meta, Autograd and composite kernels, test.
//
// Operators: softmax_attention (public), softmax_attention_forward (also gives the log-sum-exp of
// each row, saved for the backward) and softmax_attention_backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "ops/common/checks.h"
#include "ops/common/scores.h"

namespace hedgerow::ops {

void check_softmax_attention(const char* op, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const OptTensor& attn_mask,
                             std::optional<double> scale, double dropout_p,
                             std::optional<int64_t> dropout_seed);

// What the backward operator is given beside the forward's arguments.
void check_softmax_backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& v,
                            const at::Tensor& out, const at::Tensor& lse,
                            const OptTensor& attn_mask, bool mask_grad);

// (out [B,H,T,Dv], lse [B,H,T]): lse is float32, -inf for a row without keys.
std::tuple<at::Tensor, at::Tensor> softmax_attention_composite(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const OptTensor& attn_mask,
    bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<int64_t> dropout_seed);

// Weights [B,H,T,S] of the accumulation dtype before dropout. Rows without keys are zero; rows that
// see a key (or a value, where given) that is not finite are NaN.
struct SoftmaxWeights {
  at::Tensor weights;
  at::Tensor lse;  // [B,H,T], if wanted
};
// Overwrites the scores.
SoftmaxWeights softmax_of_scores(const MaskedScores& m, bool want_lse);
SoftmaxWeights softmax_weights_composite(const at::Tensor& q, const at::Tensor& k,
                                         const OptTensor& v, const OptTensor& attn_mask,
                                         bool is_causal, std::optional<double> scale,
                                         bool want_lse);

// (grad q, grad k, grad v, grad attn_mask; the last of size [0] unless mask_grad).
using SoftmaxGrads = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
SoftmaxGrads softmax_attention_backward_composite(const at::Tensor& grad, const at::Tensor& q,
                                                  const at::Tensor& k, const at::Tensor& v,
                                                  const OptTensor& attn_mask, bool is_causal,
                                                  std::optional<double> scale, double dropout_p,
                                                  std::optional<int64_t> dropout_seed,
                                                  bool mask_grad);

// The helpers through the dispatcher.
std::tuple<at::Tensor, at::Tensor> softmax_attention_forward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const OptTensor& attn_mask,
    bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<int64_t> dropout_seed);
SoftmaxGrads softmax_attention_backward(const at::Tensor& grad, const at::Tensor& q,
                                        const at::Tensor& k, const at::Tensor& v,
                                        const at::Tensor& out, const at::Tensor& lse,
                                        const OptTensor& attn_mask, bool is_causal,
                                        std::optional<double> scale, double dropout_p,
                                        std::optional<int64_t> dropout_seed, bool mask_grad);

}  // namespace hedgerow::ops
