// Masks of softmax-like attention, as ATen tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace hedgerow::ops {

// attn_mask and causality taken apart: which scores count, and what is added to them.
struct MaskTerms {
  at::Tensor keep;  // boolean, broadcastable to [B,H,T,S]; undefined: every score counts
  at::Tensor bias;  // of the accumulation dtype, 0 where excluded; undefined: nothing is added
};
MaskTerms split_mask(const std::optional<at::Tensor>& attn_mask, bool is_causal, int64_t queries,
                     int64_t keys, const at::TensorOptions& accumulate);

// [T,S], true where s <= t + (S - T).
at::Tensor causal_keep(int64_t queries, int64_t keys, const at::TensorOptions& like);

// The sum of grad [B,H,T,S] over the dimensions that a mask of this shape was broadcast over.
at::Tensor reduce_to_shape(const at::Tensor& grad, at::IntArrayRef shape);

// The counter-based dropout factors of [B,H,T,S]: 0, or 1 / (1 - p) where the weight is kept. The
// same bits as base/counter_rng.h.
at::Tensor dropout_factors(int64_t batch, int64_t heads, int64_t queries, int64_t keys, double p,
                           int64_t seed, const at::TensorOptions& options);

// [B,Hkv,..] repeated to [B,H,..]: head h reads h / (H / Hkv).
at::Tensor expand_heads(const at::Tensor& t, int64_t heads);

// 0 instead of NaN and Inf, with no gradient there.
at::Tensor finite_or_zero(const at::Tensor& t);

// tokens [B,N,d] by projection [d,I,O] -> [B,N,I,O]. A token that is not finite is NaN as a whole
// and gives the projection no gradient: a mask may exclude it.
at::Tensor project_tokens(const at::Tensor& tokens, const at::Tensor& projection);

}  // namespace hedgerow::ops
