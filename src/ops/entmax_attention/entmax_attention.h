// alpha-entmax attention: what its files share. Contract: hedgerow/ops.h. Folder: schema, checks
// and C++ entry (.cc), CPU, Meta, Autograd and composite kernels, test.
//
// Operators: entmax_attention (public), entmax_attention_forward (also gives what the backward
// needs of each row: hedgerow/kernels/entmax_attention.h) and entmax_attention_backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "ops/common/checks.h"
#include "ops/common/scores.h"

namespace hedgerow::ops {

// The arguments of the public operator.
struct EntmaxInputs {
  at::Tensor q, k, v;  // [B,H,T,D], [B,Hkv,S,D], [B,Hkv,S,Dv]
  at::Tensor alpha;    // 0-dim or [H]
  OptTensor attn_mask;
  bool is_causal = false;
  std::optional<double> scale;
  double dropout_p = 0;
  std::optional<int64_t> dropout_seed;
};

// Each row's statistics and the entries of its support. C = entmax_support_capacity(S); a tensor of
// type int16 or int32 holds unsigned keys.
struct EntmaxSaved {
  at::Tensor stats;   // float32 [B,H,T,3]
  at::Tensor index;   // [B,H,T,C]
  at::Tensor weight;  // float32 [B,H,T,C]
};

// Alpha's own rules: floating, on the device of `like`, 0-dim or [H].
void check_head_alpha(const char* op, const at::Tensor& alpha, const c10::SymInt& heads,
                      const at::Tensor& like);
// Everything but alpha's values.
void check_entmax_attention(const char* op, const EntmaxInputs& in);
void check_entmax_attention_backward(const at::Tensor& grad, const EntmaxInputs& in,
                                     const EntmaxSaved& saved, bool mask_grad);

// [B,H,T] and a last size, and the type of index, for that many keys.
std::vector<c10::SymInt> saved_sizes(const at::Tensor& q, const c10::SymInt& last);
c10::SymInt support_capacity(const c10::SymInt& keys);
at::ScalarType support_index_dtype(const c10::SymInt& keys);

// The weights of rows of scores; alpha as above.
at::Tensor entmax_of_scores(const MaskedScores& m, const at::Tensor& alpha);
// Weights [B,H,T,S] of the accumulation dtype before dropout; rows without keys are zero. v, where
// given, marks rows as masked_scores says.
at::Tensor entmax_weights_composite(const at::Tensor& q, const at::Tensor& k, const OptTensor& v,
                                    const at::Tensor& alpha, const OptTensor& attn_mask,
                                    bool is_causal, std::optional<double> scale);

// [B,H,T,Dv]
at::Tensor entmax_attention_composite(const EntmaxInputs& in);
// The same, and what a fused backward may read.
std::tuple<at::Tensor, EntmaxSaved> entmax_attention_composite_saving(const EntmaxInputs& in);

// (grad q, grad k, grad v, grad alpha, grad attn_mask; the last two of size [0] unless wanted).
using EntmaxAttentionGrads = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
EntmaxAttentionGrads entmax_attention_backward_composite(const at::Tensor& grad,
                                                         const EntmaxInputs& in, bool alpha_grad,
                                                         bool mask_grad);

// The helpers through the dispatcher.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> entmax_attention_forward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& alpha,
    const OptTensor& attn_mask, bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<int64_t> dropout_seed);
EntmaxAttentionGrads entmax_attention_backward(const at::Tensor& grad, const at::Tensor& q,
                                               const at::Tensor& k, const at::Tensor& v,
                                               const at::Tensor& alpha, const at::Tensor& stats,
                                               const at::Tensor& index, const at::Tensor& weight,
                                               const OptTensor& attn_mask, bool is_causal,
                                               std::optional<double> scale, double dropout_p,
                                               std::optional<int64_t> dropout_seed, bool alpha_grad,
                                               bool mask_grad);

}  // namespace hedgerow::ops
