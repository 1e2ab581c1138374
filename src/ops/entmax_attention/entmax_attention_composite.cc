// The definition, in ATen operators and the operator entmax: any device, differentiable twice,
// O(T S) memory.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <limits>

#include "hedgerow/kernels/entmax_attention.h"
#include "hedgerow/ops.h"
#include "ops/common/composite_gradient.h"
#include "ops/common/dispatch.h"
#include "ops/common/masks.h"
#include "ops/common/scores.h"
#include "ops/entmax/entmax.h"
#include "ops/entmax_attention/entmax_attention.h"

namespace hedgerow::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// For scores [B,H,T,S].
at::Tensor alpha_of_heads(const at::Tensor& alpha) {
  return alpha.dim() == 0 ? alpha : alpha.view({1, alpha.size(0), 1, 1});
}

at::Tensor weighted_values(const at::Tensor& weights, const EntmaxInputs& in) {
  const int64_t B = in.q.size(0), H = in.q.size(1), T = in.q.size(2), S = in.k.size(2);
  const at::Tensor dropped =
      in.dropout_p > 0
          ? weights * dropout_factors(B, H, T, S, in.dropout_p, *in.dropout_seed, weights.options())
          : weights;
  const at::Tensor values = expand_heads(finite_or_zero(in.v.to(weights.scalar_type())), H);
  return at::matmul(dropped, values).to(in.q.scalar_type());  // [B,H,T,Dv]
}

// The first C supported keys of each row and their weights, where there are no more than C.
EntmaxSaved support_entries(const at::Tensor& weights, const at::Tensor& size) {
  const int64_t S = weights.size(-1), capacity = kernels::entmax_support_capacity(S);
  const at::Tensor inside = (weights > 0).logical_and(size <= capacity);
  const at::Tensor place = at::where(inside, inside.cumsum(-1) - 1, capacity);  // C: nowhere
  std::vector<int64_t> sizes = weights.sizes().vec();
  sizes.back() = capacity + 1;
  const at::Tensor keys = at::arange(S, weights.options().dtype(at::kLong)).expand(weights.sizes());
  const auto entries = [&](const at::Tensor& of) {
    return at::zeros(sizes, of.options()).scatter(-1, place, of).narrow(-1, 0, capacity);
  };
  return {{},
          entries(keys).to(support_index_dtype(S)).contiguous(),
          entries(weights.to(at::kFloat)).contiguous()};
}

// What hedgerow/kernels/entmax_attention.h says of a row's statistics, from its weights.
EntmaxSaved saved_of(const MaskedScores& m, const at::Tensor& weights, const at::Tensor& alpha) {
  const at::Tensor size = (weights > 0).sum(-1, true);  // [B,H,T,1]
  EntmaxSaved saved = support_entries(weights, size);
  if (weights.numel() == 0) {
    const at::Tensor zeros = at::zeros_like(size, at::kFloat);
    saved.stats = at::cat({zeros, zeros, zeros}, -1);
    return saved;
  }
  const at::Tensor p = weights.to(at::kDouble), z = m.scores.to(at::kDouble);
  const at::Tensor e = alpha_of_heads(alpha.to(at::kDouble)) - 1;
  const at::Tensor outside = p <= 0, blind = size == 0;
  const at::Tensor top = z.masked_fill(outside, -kInf).amax(-1, true);
  const at::Tensor low = z.masked_fill(outside, kInf).amin(-1, true);
  const at::Tensor log_top = p.amax(-1, true).log();  // = log1p(e (m - lambda)) / e
  const at::Tensor gap =
      -at::where(e == 0, log_top, (e * log_top).expm1() / e.masked_fill(e == 0, 1));
  const at::Tensor least = p.masked_fill(outside, kInf).amin(-1, true);
  const at::Tensor large = e > 1.5;
  saved.stats = at::cat({at::where(large, low, top).masked_fill(blind, 0),
                         at::where(large, least, gap).masked_fill(blind, 0), size.to(at::kDouble)},
                        -1)
                    .to(at::kFloat);
  return saved;
}

}  // namespace

at::Tensor entmax_of_scores(const MaskedScores& m, const at::Tensor& alpha) {
  return entmax(m.scores, alpha_of_heads(alpha), -1, optional(m.keep));
}

at::Tensor entmax_weights_composite(const at::Tensor& q, const at::Tensor& k, const OptTensor& v,
                                    const at::Tensor& alpha, const OptTensor& attn_mask,
                                    bool is_causal, std::optional<double> scale) {
  return entmax_of_scores(masked_scores(q, k, v, attn_mask, is_causal, scale), alpha);
}

at::Tensor entmax_attention_composite(const EntmaxInputs& in) {
  return weighted_values(
      entmax_weights_composite(in.q, in.k, in.v, in.alpha, in.attn_mask, in.is_causal, in.scale),
      in);
}

std::tuple<at::Tensor, EntmaxSaved> entmax_attention_composite_saving(const EntmaxInputs& in) {
  const MaskedScores m = masked_scores(in.q, in.k, in.v, in.attn_mask, in.is_causal, in.scale);
  const at::Tensor weights = entmax_of_scores(m, in.alpha);
  return {weighted_values(weights, in), saved_of(m, weights, in.alpha)};
}

EntmaxAttentionGrads entmax_attention_backward_composite(const at::Tensor& grad,
                                                         const EntmaxInputs& in, bool alpha_grad,
                                                         bool mask_grad) {
  const at::Tensor mask = in.attn_mask.value_or(at::Tensor());
  const auto forward = [&](const std::vector<at::Tensor>& t) -> std::vector<at::Tensor> {
    EntmaxInputs same = in;
    same.q = t[0];
    same.k = t[1];
    same.v = t[2];
    same.alpha = t[3];
    same.attn_mask = optional(t[4]);
    return {entmax_attention_composite(same)};
  };
  const auto grads = composite_gradient(forward, {in.q, in.k, in.v, in.alpha, mask},
                                        {true, true, true, alpha_grad, mask_grad}, {grad});
  const auto none = [](const at::Tensor& like) {
    return at::empty({0}, like.options().requires_grad(false));
  };
  return {or_zeros(grads[0], in.q), or_zeros(grads[1], in.k), or_zeros(grads[2], in.v),
          alpha_grad ? or_zeros(grads[3], in.alpha) : none(in.alpha),
          mask_grad ? or_zeros(grads[4], mask) : none(in.q)};
}

namespace {

at::Tensor entmax_attention_any(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const at::Tensor& alpha, const OptTensor& attn_mask, bool is_causal,
                                std::optional<double> scale, double dropout_p,
                                std::optional<int64_t> dropout_seed) {
  const EntmaxInputs in{q, k, v, alpha, attn_mask, is_causal, scale, dropout_p, dropout_seed};
  check_entmax_attention("entmax_attention", in);
  check_alpha_values("entmax_attention", alpha);
  return entmax_attention_composite(in);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> entmax_attention_forward_any(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& alpha,
    const OptTensor& attn_mask, bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<int64_t> dropout_seed) {
  const EntmaxInputs in{q, k, v, alpha, attn_mask, is_causal, scale, dropout_p, dropout_seed};
  check_entmax_attention("entmax_attention", in);
  check_alpha_values("entmax_attention", alpha);
  const auto [out, saved] = entmax_attention_composite_saving(in);
  return {out, saved.stats, saved.index, saved.weight};
}

EntmaxAttentionGrads entmax_attention_backward_any(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& alpha, const at::Tensor& stats, const at::Tensor& index,
    const at::Tensor& weight, const OptTensor& attn_mask, bool is_causal,
    std::optional<double> scale, double dropout_p, std::optional<int64_t> dropout_seed,
    bool alpha_grad, bool mask_grad) {
  const EntmaxInputs in{q, k, v, alpha, attn_mask, is_causal, scale, dropout_p, dropout_seed};
  check_entmax_attention_backward(grad, in, {stats, index, weight}, mask_grad);
  check_alpha_values("entmax_attention_backward", alpha);
  return entmax_attention_backward_composite(grad, in, alpha_grad, mask_grad);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CompositeExplicitAutograd, m) {
  m.impl("entmax_attention", hedgerow::ops::entmax_attention_any);
  m.impl("entmax_attention_forward", hedgerow::ops::entmax_attention_forward_any);
  m.impl("entmax_attention_backward", hedgerow::ops::entmax_attention_backward_any);
}
