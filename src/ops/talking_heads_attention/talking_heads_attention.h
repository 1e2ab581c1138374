// Talking-heads attention: what its files share. Contract: hedgerow/ops.h. Folder: schemas, checks
// and C++ entries (.cc), CPU, Meta, Autograd and composite kernels, projections of tokens
// (dynamic_talking_heads_attention.cc), test.
//
// Operators: talking_heads_attention (public) and talking_heads_attention_backward, which needs the
// inputs alone: nothing is saved. Helper: dynamic_talking_heads_attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <tuple>

#include "hedgerow/ops.h"
#include "ops/common/checks.h"

namespace hedgerow::ops {

// The arguments of the public operator.
struct TalkingHeadsInputs : TalkingHeadsOptions {
  at::Tensor q, k, v;  // [B,Hk,T,D], [B,Hkk,S,D], [B,Hvv,S,Dv]

  static auto fields(auto& in) {
    return std::tie(in.q, in.k, in.v, in.logits_proj, in.weights_proj, in.attn_mask, in.is_causal,
                    in.scale, in.alpha, in.x_logits, in.m_logits, in.x_weights, in.m_weights,
                    in.dropout_p, in.dropout_seed);
  }
};

// The optional tensors, in the schema's order. All of them may have a gradient.
enum OptionalTensor : size_t {
  kLogitsProj,
  kWeightsProj,
  kAttnMask,
  kAlpha,
  kXLogits,
  kMLogits,
  kXWeights,
  kMWeights,
  kNumOptional
};
auto optional_tensors(auto& in) {
  return std::array{&in.logits_proj, &in.weights_proj, &in.attn_mask, &in.alpha,
                    &in.x_logits,    &in.m_logits,     &in.x_weights, &in.m_weights};
}

// Hk, H and Hv, of inputs whose projections have two dimensions.
struct HeadCounts {
  c10::SymInt key, softmax, value;
};
HeadCounts head_counts(const TalkingHeadsInputs& in);

// A parameter has q's dtype, or float32 where q is bfloat16, and q's device.
void check_parameter(const char* op, Named t, const at::Tensor& q);

// Everything but v and dropout.
void check_mixed_weights(const char* op, const TalkingHeadsInputs& in);
void check_talking_heads_attention(const char* op, const TalkingHeadsInputs& in);

// What the backward operator is given beside the inputs. Gradients of q, k and v are always given,
// those of the optional tensors where wanted.
using WantedGrads = std::array<bool, kNumOptional>;
void check_talking_heads_backward(const TalkingHeadsInputs& in, const at::Tensor& grad,
                                  const WantedGrads& wanted);

// Gradients of q, k, v and the optional tensors; of size [0] where not wanted.
constexpr size_t kNumGrads = 3 + kNumOptional;
using GradArray = std::array<at::Tensor, kNumGrads>;
using TalkingHeadsGrads = decltype(std::tuple_cat(GradArray()));

// The mixed weights U [B,Hv,T,S] before dropout, of the accumulation dtype. v may be undefined.
at::Tensor mixed_weights_composite(const TalkingHeadsInputs& in);

// [B,Hv,T,Dv]
at::Tensor talking_heads_attention_composite(const TalkingHeadsInputs& in);
TalkingHeadsGrads talking_heads_attention_backward_composite(const TalkingHeadsInputs& in,
                                                             const at::Tensor& grad,
                                                             const WantedGrads& wanted);

// Through the dispatcher.
at::Tensor talking_heads_attention(const TalkingHeadsInputs& in);
TalkingHeadsGrads talking_heads_attention_backward(const TalkingHeadsInputs& in,
                                                   const at::Tensor& grad, WantedGrads wanted);

}  // namespace hedgerow::ops
