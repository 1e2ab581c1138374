// Attention from partial computation: what its files share. Contract: hedgerow/ops.h. Folder:
// checks (partial_checks.cc), scores (partial_scores.cc), the operators (partial_attention.cc),
// positions and reconstruction from a covariance (greedy_positions.cc, lmmse_reconstruction.cc),
// tests.
//
// Operators: greedy_positions. Helpers made of operators (CompositeImplicitAutograd, no kernels of
// their own): partial_attention, partial_attention_selected, lmmse_reconstruction.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "hedgerow/ops.h"
#include "ops/common/checks.h"
#include "ops/common/scores.h"

namespace hedgerow::ops {

// The arguments of both attention operators.
struct PartialInputs : PartialOptions {
  at::Tensor q, k, v;  // [B,H,T,D], [B,Hkv,S,D] or the selected keys, [B,Hkv,S,Dv]
  at::Tensor positions, reconstruction;

  static auto fields(auto& in) {
    return std::tie(in.q, in.k, in.v, in.positions, in.reconstruction, in.mean, in.attn_mask,
                    in.is_causal, in.scale, in.alpha, in.dropout_p, in.dropout_seed);
  }
};

// [n,n] or [H,n,n] of a floating dtype.
void check_covariance(const char* op, const at::Tensor& covariance);

// A score with less than this share of the largest variance follows from those before it.
inline constexpr double kNoVariance = 1e-12;

// Positions are int64, distinct in each row and in [0, keys). Looks at the data, so it does nothing
// for Meta and fake tensors (torch.compile).
void check_position_values(const char* op, const at::Tensor& positions, const c10::SymInt& keys);

// Everything but v and dropout; k are all keys.
void check_partial_weights(const char* op, const PartialInputs& in);
void check_partial_attention(const char* op, const PartialInputs& in);
void check_partial_attention_selected(const char* op, const PartialInputs& in);

// positions [P], [H,P], [1 or H,T,P] -> [1 or H,1 or T,P]; the mean alike; reconstructions
// [S,P], .. -> [1 or H,1 or T,S,P].
at::Tensor with_heads_and_queries(const at::Tensor& t, int64_t own_dims);

// The selected ones of keys [B,Hkv,S,D]: [B,Hkv or H,P,D]; all of them for positions by query,
// whose keys are read where they lie.
at::Tensor selected_keys(const at::Tensor& k, const at::Tensor& positions,
                         const c10::SymInt& heads);

// Scores of the selected keys less their means, [B,H,T,P] of the accumulation dtype; 0 where a
// query may not see the key. keys: selected_keys'.
at::Tensor centred_scores(const PartialInputs& in, const at::Tensor& keys);

// [B,H,T,S] reconstructed from centred scores, without mean and mask. Where `masked`, a row of R
// that is not finite spoils its own scores alone and has no gradient.
at::Tensor reconstructed_scores(const at::Tensor& centred, const at::Tensor& reconstruction,
                                bool masked);

// Weights [B,H,T,S] of the accumulation dtype.
at::Tensor partial_weights_composite(const PartialInputs& in);

}  // namespace hedgerow::ops
