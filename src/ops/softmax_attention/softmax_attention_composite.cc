// The definition, in ATen operators: any device, differentiable twice, O(T S) memory.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <limits>

#include "ops/common/composite_gradient.h"
#include "ops/common/dispatch.h"
#include "ops/common/masks.h"
#include "ops/common/scores.h"
#include "ops/softmax_attention/softmax_attention.h"

namespace hedgerow::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

}  // namespace

SoftmaxWeights softmax_of_scores(const MaskedScores& m, bool want_lse) {
  at::Tensor scores = m.scores;
  SoftmaxWeights result;
  if (!m.keep.defined()) {
    result.weights = scores.softmax(-1);
    if (want_lse) result.lse = at::logsumexp(scores.detach(), -1).to(at::kFloat);
    return result;
  }
  // a row of -inf alone has no softmax: its own scores stand in, and its weights become 0
  // (in place: what made the scores does not need them for its backward)
  scores.masked_fill_(m.keep.logical_or(m.blind).logical_not(), -kInf);
  const at::Tensor weights = scores.softmax(-1);
  result.weights =
      weights.requires_grad() ? weights.masked_fill(m.blind, 0) : weights.masked_fill_(m.blind, 0);
  if (want_lse)
    result.lse =
        at::logsumexp(scores.detach(), -1).to(at::kFloat).masked_fill(m.blind.squeeze(-1), -kInf);
  return result;
}

SoftmaxWeights softmax_weights_composite(const at::Tensor& q, const at::Tensor& k,
                                         const OptTensor& v, const OptTensor& attn_mask,
                                         bool is_causal, std::optional<double> scale,
                                         bool want_lse) {
  return softmax_of_scores(masked_scores(q, k, v, attn_mask, is_causal, scale), want_lse);
}

std::tuple<at::Tensor, at::Tensor> softmax_attention_composite(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const OptTensor& attn_mask,
    bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<int64_t> dropout_seed) {
  const int64_t B = q.size(0), H = q.size(1), T = q.size(2), S = k.size(2);
  const SoftmaxWeights w = softmax_weights_composite(q, k, v, attn_mask, is_causal, scale, true);
  at::Tensor weights = w.weights;
  if (dropout_p > 0)
    weights = weights * dropout_factors(B, H, T, S, dropout_p, *dropout_seed, weights.options());
  const at::Tensor values =
      expand_heads(finite_or_zero(v.to(weights.scalar_type())), H);  // [B,H,S,Dv]
  return {at::matmul(weights, values).to(q.scalar_type()), w.lse};
}

SoftmaxGrads softmax_attention_backward_composite(const at::Tensor& grad, const at::Tensor& q,
                                                  const at::Tensor& k, const at::Tensor& v,
                                                  const OptTensor& attn_mask, bool is_causal,
                                                  std::optional<double> scale, double dropout_p,
                                                  std::optional<int64_t> dropout_seed,
                                                  bool mask_grad) {
  const at::Tensor mask = attn_mask.value_or(at::Tensor());
  const auto forward = [&](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
    const OptTensor bias = in[3].defined() ? OptTensor(in[3]) : OptTensor();
    return {std::get<0>(softmax_attention_composite(in[0], in[1], in[2], bias, is_causal, scale,
                                                    dropout_p, dropout_seed))};
  };
  const auto grads =
      composite_gradient(forward, {q, k, v, mask}, {true, true, true, mask_grad}, {grad});
  return {or_zeros(grads[0], q), or_zeros(grads[1], k), or_zeros(grads[2], v),
          mask_grad ? or_zeros(grads[3], mask) : at::empty({0}, q.options().requires_grad(false))};
}

namespace {

at::Tensor softmax_attention_any(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const OptTensor& attn_mask, bool is_causal,
                                 std::optional<double> scale, double dropout_p,
                                 std::optional<int64_t> dropout_seed) {
  check_softmax_attention("softmax_attention", q, k, v, attn_mask, scale, dropout_p, dropout_seed);
  return std::get<0>(
      softmax_attention_composite(q, k, v, attn_mask, is_causal, scale, dropout_p, dropout_seed));
}

std::tuple<at::Tensor, at::Tensor> softmax_attention_forward_any(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const OptTensor& attn_mask,
    bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<int64_t> dropout_seed) {
  check_softmax_attention("softmax_attention", q, k, v, attn_mask, scale, dropout_p, dropout_seed);
  return softmax_attention_composite(q, k, v, attn_mask, is_causal, scale, dropout_p, dropout_seed);
}

SoftmaxGrads softmax_attention_backward_any(const at::Tensor& grad, const at::Tensor& q,
                                            const at::Tensor& k, const at::Tensor& v,
                                            const at::Tensor& out, const at::Tensor& lse,
                                            const OptTensor& attn_mask, bool is_causal,
                                            std::optional<double> scale, double dropout_p,
                                            std::optional<int64_t> dropout_seed, bool mask_grad) {
  check_softmax_attention("softmax_attention_backward", q, k, v, attn_mask, scale, dropout_p,
                          dropout_seed);
  check_softmax_backward(grad, q, v, out, lse, attn_mask, mask_grad);
  return softmax_attention_backward_composite(grad, q, k, v, attn_mask, is_causal, scale, dropout_p,
                                              dropout_seed, mask_grad);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CompositeExplicitAutograd, m) {
  m.impl("softmax_attention", hedgerow::ops::softmax_attention_any);
  m.impl("softmax_attention_forward", hedgerow::ops::softmax_attention_forward_any);
  m.impl("softmax_attention_backward", hedgerow::ops::softmax_attention_backward_any);
}
