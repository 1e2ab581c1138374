#include "ops/common/scores.h"

#include <ATen/ATen.h>

#include <limits>

#include "ops/common/dispatch.h"
#include "ops/common/masks.h"

namespace hedgerow::ops {
namespace {

// Boolean [B,H,S]: the key, or the value where there is one, has an entry that is not finite.
at::Tensor not_finite(const at::Tensor& k, const std::optional<at::Tensor>& v) {
  at::Tensor bad = at::isfinite(k.detach()).all(-1).logical_not();
  if (v) bad = bad.logical_or(at::isfinite(v->detach()).all(-1).logical_not());
  return bad;
}

}  // namespace

double lowest_finite(at::ScalarType dtype) {
  return dtype == at::kDouble ? std::numeric_limits<double>::lowest()
                              : std::numeric_limits<float>::lowest();
}

MaskedScores masked_scores(const at::Tensor& q, const at::Tensor& k,
                           const std::optional<at::Tensor>& v,
                           const std::optional<at::Tensor>& attn_mask, bool is_causal,
                           std::optional<double> scale) {
  const int64_t H = q.size(1), T = q.size(2), S = k.size(2);
  const at::ScalarType dtype = accumulate_dtype(q.scalar_type());
  const MaskTerms terms = split_mask(attn_mask, is_causal, T, S, q.options().dtype(dtype));
  MaskedScores out;
  out.keep = terms.keep;

  const at::Tensor bad = expand_heads(not_finite(k, v), H);  // [B,H,S]
  at::Tensor queries = q.to(dtype) * scale_or_default(scale, q), poisoned;
  if (terms.keep.defined()) {
    out.blind = terms.keep.any(-1, true).logical_not();
    poisoned = terms.keep.logical_and(bad.unsqueeze(2))
                   .any(-1)
                   .unsqueeze(-1);  // the row sees one that is not finite
    queries = queries.masked_fill(out.blind, 0);
  } else {
    poisoned = bad.any(-1, true).unsqueeze(-1);
  }
  queries = queries.masked_fill(poisoned, std::nan(""));
  const at::Tensor keys = expand_heads(finite_or_zero(k.to(dtype)), H);  // [B,H,S,D]
  out.scores = at::matmul(queries, keys.transpose(2, 3));                // [B,H,T,S]
  if (terms.bias.defined()) out.scores = (out.scores + terms.bias).clamp_min(lowest_finite(dtype));
  return out;
}

}  // namespace hedgerow::ops
