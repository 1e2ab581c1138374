// The full weight tensor of a mechanism, for analysis and distillation. Contract: hedgerow/ops.h.
//
// One operator for all mechanisms: `kind` chooses, and what a kind does not take must be left out.
// A new mechanism adds optional keyword arguments at the end of the schema and of the fields, and a
// case in composite.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <tuple>

#include "ops/common/checks.h"
#include "ops/partial_attention/partial_attention.h"
#include "ops/talking_heads_attention/talking_heads_attention.h"

namespace hedgerow::ops {

enum class WeightsKind { kSoftmax, kEntmax, kTalkingHeads, kPartial, kHedgehog };

struct WeightsInputs {
  std::string kind;
  at::Tensor q, k;  // [B,H,T,D], [B,Hkv,S,D]
  OptTensor attn_mask;
  bool is_causal = false;
  std::optional<double> scale;
  OptTensor wq, wk, bq, bk;
  std::string variant = "exp";
  OptTensor key_mask;
  OptTensor alpha;
  OptTensor logits_proj, weights_proj, x_logits, m_logits, x_weights, m_weights;
  OptTensor positions, reconstruction, mean;

  static auto fields(auto& in) {
    return std::tie(in.kind, in.q, in.k, in.attn_mask, in.is_causal, in.scale, in.wq, in.wk, in.bq,
                    in.bk, in.variant, in.key_mask, in.alpha, in.logits_proj, in.weights_proj,
                    in.x_logits, in.m_logits, in.x_weights, in.m_weights, in.positions,
                    in.reconstruction, in.mean);
  }
};

// Checks all arguments and returns the kind.
WeightsKind check_attention_weights(const WeightsInputs& in);

// The operator's arguments of kind "talking_heads", with `mask` for attn_mask and without v.
TalkingHeadsInputs talking_heads_inputs(const WeightsInputs& in, const OptTensor& mask);

// The operator's arguments of kind "partial", with `mask` for attn_mask and without v.
PartialInputs partial_inputs(const WeightsInputs& in, const OptTensor& mask);

// [B,H,T,S] of q's dtype, differentiable; H is Hv for talking heads.
at::Tensor attention_weights_composite(WeightsKind kind, const WeightsInputs& in);

at::Tensor attention_weights(const WeightsInputs& in);

}  // namespace hedgerow::ops
