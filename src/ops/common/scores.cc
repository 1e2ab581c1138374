#include "ops/common/scores.h"

#include <ATen/ATen.h>

#include <limits>

#include "ops/common/dispatch.h"
#include "ops/common/masks.h"

namespace hedgerow::ops {

at::Tensor not_finite(const at::Tensor& k, const std::optional<at::Tensor>& v) {
  at::Tensor bad = at::isfinite(k.detach()).all(-1).logical_not();
  if (v) bad = bad.logical_or(at::isfinite(v->detach()).all(-1).logical_not());
  return bad;
}

double lowest_finite(at::ScalarType dtype) {
  return dtype == at::kDouble ? std::numeric_limits<double>::lowest()
                              : std::numeric_limits<float>::lowest();
}

MaskedScores visible_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& keep,
                            const at::Tensor& bad, std::optional<double> scale) {
  const at::ScalarType dtype = accumulate_dtype(q.scalar_type());
  MaskedScores out;
  out.keep = keep;
  at::Tensor queries = q.to(dtype) * scale_or_default(scale, q);
  at::Tensor poisoned;  // the row sees a bad key
  if (keep.defined()) {
    out.blind = keep.any(-1, true).logical_not();
    poisoned = keep.logical_and(bad.unsqueeze(2)).any(-1).unsqueeze(-1);
    queries = queries.masked_fill(out.blind, 0);
  } else {
    poisoned = bad.any(-1, true).unsqueeze(-1);
  }
  queries = queries.masked_fill(poisoned, std::nan(""));
  const at::Tensor keys = expand_heads(finite_or_zero(k.to(dtype)), q.size(1));  // [B,H,S,D]
  out.scores = at::matmul(queries, keys.transpose(2, 3));                        // [B,H,T,S]
  return out;
}

at::Tensor add_bias(const at::Tensor& scores, const at::Tensor& bias) {
  if (!bias.defined()) return scores;
  return (scores + bias).clamp_min(lowest_finite(scores.scalar_type()));
}

MaskedScores masked_scores(const at::Tensor& q, const at::Tensor& k,
                           const std::optional<at::Tensor>& v,
                           const std::optional<at::Tensor>& attn_mask, bool is_causal,
                           std::optional<double> scale) {
  const MaskTerms terms = split_mask(attn_mask, is_causal, q.size(2), k.size(2),
                                     q.options().dtype(accumulate_dtype(q.scalar_type())));
  MaskedScores out =
      visible_scores(q, k, terms.keep, expand_heads(not_finite(k, v), q.size(1)), scale);
  out.scores = add_bias(out.scores, terms.bias);
  return out;
}

}  // namespace hedgerow::ops
