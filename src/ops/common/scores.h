// Scores of composite attention: scale q k^T + mask with what may be seen taken apart, shared by
// every mechanism that normalises rows of scores.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>
#include <optional>

namespace hedgerow::ops {

inline double scale_or_default(std::optional<double> scale, const at::Tensor& q) {
  return scale ? *scale : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
}

// The least finite number of an accumulation dtype.
double lowest_finite(at::ScalarType dtype);

struct MaskedScores {
  at::Tensor scores;  // [B,H,T,S] of the accumulation dtype, finite where inputs are; those of
                      // excluded keys are 0 or stand for nothing
  at::Tensor keep;    // boolean, broadcastable to scores; undefined: every score counts
  at::Tensor blind;   // boolean [..,T or 1,1]: the row sees no key; undefined without keep
};

// Boolean [B,H,S]: the key, or the value where there is one, has an entry that is not finite.
at::Tensor not_finite(const at::Tensor& k, const std::optional<at::Tensor>& v);

// scale q k^T, where rows that see no key are 0 and rows that see a bad one are NaN; keep as in
// MaskedScores, bad boolean [B,H or 1,S].
MaskedScores visible_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& keep,
                            const at::Tensor& bad, std::optional<double> scale);

// scores + bias, where finite ones stay finite; bias may be undefined.
at::Tensor add_bias(const at::Tensor& scores, const at::Tensor& bias);

// The scores under one mask, bias added. Differentiable in q, k and a floating attn_mask. What a
// mask excludes reaches no score and no gradient; rows that see a key (or a value, where given)
// that is not finite are NaN.
MaskedScores masked_scores(const at::Tensor& q, const at::Tensor& k,
                           const std::optional<at::Tensor>& v,
                           const std::optional<at::Tensor>& attn_mask, bool is_causal,
                           std::optional<double> scale);

}  // namespace hedgerow::ops
