// The full weight tensor of a mechanism, for analysis and distillation. Contract: hedgerow/ops.h.
//
// One operator for all mechanisms: `kind` chooses, and what a kind does not take must be left out.
// A new mechanism adds optional keyword arguments at the end of the schema and a case in composite.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "ops/common/checks.h"

namespace hedgerow::ops {

enum class WeightsKind { kSoftmax, kHedgehog, kEntmax };

struct WeightsInputs {
  at::Tensor q, k;  // [B,H,T,D], [B,Hkv,S,D]
  OptTensor attn_mask;
  bool is_causal = false;
  std::optional<double> scale;
  OptTensor wq, wk, bq, bk;
  std::string variant;
  OptTensor key_mask;
  OptTensor alpha;
};

// Checks all arguments and returns the kind.
WeightsKind check_attention_weights(std::string_view kind, const WeightsInputs& in);

// [B,H,T,S] of q's dtype, differentiable.
at::Tensor attention_weights_composite(WeightsKind kind, const WeightsInputs& in);

at::Tensor attention_weights(std::string_view kind, const at::Tensor& q, const at::Tensor& k,
                             const OptTensor& attn_mask, bool is_causal,
                             std::optional<double> scale, const OptTensor& wq, const OptTensor& wk,
                             const OptTensor& bq, const OptTensor& bk, std::string_view variant,
                             const OptTensor& key_mask, const OptTensor& alpha);

}  // namespace hedgerow::ops
