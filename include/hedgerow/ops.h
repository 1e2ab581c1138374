// The operators of Hedgerow, as C++ functions. Each goes through torch's dispatcher, as
// torch.ops.hedgerow.* and hedgerow.ops.* do, so that checks, autograd, Meta and composite forms
// are the same for all callers.
//
// Legend: B batch, T queries, S keys, H heads, Hkv key/value heads (Hkv divides H; head h reads
// key/value head h / (H / Hkv)), D query/key width, Dv value width, E map width, F feature width.
//
// Rules common to all: q [B,H,T,D], k [B,Hkv,S,D], v [B,Hkv,S,Dv] of one dtype (float32, bfloat16
// or float64); `scale` defaults to 1/sqrt(D). `attn_mask` is boolean (true = keep) or floating
// (added to the scaled scores; -inf excludes), broadcastable to [B,H,T,S]. `is_causal` is aligned
// bottom-right: query t sees keys s <= t + (S - T); both together intersect. (Here Hedgerow differs
// from scaled_dot_product_attention, whose causal mask is top-left.) What a mask excludes is never
// read: NaN stored there changes nothing. A query that sees no key gives zeros and zero gradients.
// Sizes of 0 work. Bad arguments throw c10::Error whose text is "op: rule; got values".
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

namespace hedgerow {

// Which implementation operators use. automatic: the fused kernel where it applies, else the
// composite form. fast_only: an error where the fused kernel does not apply. composite_only: never
// the fused kernel. Process-wide; meant for tests and comparisons.
enum class Path { automatic, fast_only, composite_only };
void set_path(Path path);
Path path();

namespace ops {

using OptTensor = std::optional<at::Tensor>;

// softmax(scale q k^T + mask) v -> [B,H,T,Dv]. Flash attention: O(T) memory, forward and backward.
// Dropout acts on the weights, by counter (seed, b, h, t, s); dropout_p > 0 needs dropout_seed.
at::Tensor softmax_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const OptTensor& attn_mask = {}, bool is_causal = false,
                             std::optional<double> scale = {}, double dropout_p = 0.0,
                             std::optional<int64_t> dropout_seed = {});

// alpha-entmax over dim: [ (alpha-1) x - tau ]_+^(1/(alpha-1)), entries summing to 1; alpha = 1 is
// softmax, alpha = 2 sparsemax (arXiv 1909.00015). alpha: floating, finite and >= 1, learnable;
// 0-dim, or of x's rank with size 1 on dim and sizes of 1 or x's elsewhere. mask: boolean (true =
// keep), broadcastable to x; entries of -inf are excluded too. A row without entries gives zeros.
at::Tensor entmax(const at::Tensor& x, const at::Tensor& alpha, int64_t dim = -1,
                  const OptTensor& mask = {});

// The same at alpha = 2 and alpha = 1.5.
at::Tensor sparsemax(const at::Tensor& x, int64_t dim = -1, const OptTensor& mask = {});
at::Tensor entmax15(const at::Tensor& x, int64_t dim = -1, const OptTensor& mask = {});

// entmax of the k largest entries along dim, for rows too long to keep whole results of: (values of
// x's sizes but k on dim, descending, 0 beyond the support; int64 indices into x, -1 where the
// value is 0; boolean complete, without dim). Where complete, this is entmax of the whole row.
std::tuple<at::Tensor, at::Tensor, at::Tensor> entmax_topk(const at::Tensor& x,
                                                           const at::Tensor& alpha, int64_t k,
                                                           int64_t dim = -1,
                                                           const OptTensor& mask = {});

// The Fenchel-Young loss of entmax for classifiers: x [..,C], target int64 [..] -> loss [..] of the
// accumulation dtype (not averaged). Cross-entropy at alpha = 1; gradient entmax(x) - onehot. 0 for
// targets of ignore_index; exactly 0 once the target's weight is 1.
at::Tensor entmax_loss(const at::Tensor& x, const at::Tensor& target, const at::Tensor& alpha,
                       int64_t ignore_index = -100);

// entmax_alpha(scale q k^T + mask) v -> [B,H,T,Dv]. alpha: 0-dim or [H], as above; it has a
// gradient. Memory O(T): per query row and head at most about 600 bytes are kept for the backward.
// Masks and dropout as in softmax_attention.
at::Tensor entmax_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& alpha, const OptTensor& attn_mask = {},
                            bool is_causal = false, std::optional<double> scale = {},
                            double dropout_p = 0.0, std::optional<int64_t> dropout_seed = {});

// Arguments of talking_heads_attention beside q, k and v. Hk, H and Hv are the heads of q, of the
// softmax and of the output.
struct TalkingHeadsOptions {
  OptTensor logits_proj;   // Pl [Hk,H]; none: the identity, H = Hk
  OptTensor weights_proj;  // Pw [H,Hv]; none: the identity, Hv = H
  OptTensor attn_mask;     // over the softmax heads: broadcastable to [B,H,T,S]
  bool is_causal = false;
  std::optional<double> scale;
  OptTensor alpha;      // of entmax, 0-dim or [H]; none: softmax
  OptTensor x_logits;   // [B,T,Hk,H], added to Pl for each query
  OptTensor m_logits;   // [B,S,Hk,H], added to Pl for each key
  OptTensor x_weights;  // [B,T,H,Hv], added to Pw for each query
  OptTensor m_weights;  // [B,S,H,Hv], added to Pw for each key
  double dropout_p = 0.0;
  std::optional<int64_t> dropout_seed;
};

// Talking-heads attention (arXiv 2003.02436): heads mixed before and after the softmax.
//
//   J = scale q k^T                                          [B,Hk,T,S]
//   L[h] = sum_a J[a] Pl[a,h];  W = softmax or entmax of (L + attn_mask) over keys   [B,H,T,S]
//   U[c] = sum_h W[h] Pw[h,c];  out = drop(U) v              [B,Hv,T,Dv]
//
// q [B,Hk,T,D], k [B,Hkk,S,D], v [B,Hvv,S,Dv]: Hkk divides Hk, Hvv divides Hv, and they may differ.
// Projections and dynamic terms have q's dtype, or float32 where q is bfloat16. A dynamic term
// needs its projection. All have gradients, alpha and a floating mask too. Rows of U need not sum
// to 1. A key is excluded when every softmax head excludes it; its dynamic terms are not read
// either. Memory O(T); 2 (Hk D + Hk H + H Hv + Hv Dv) FLOPs per query and key.
at::Tensor talking_heads_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const TalkingHeadsOptions& options = {});

// Arguments of dynamic_talking_heads_attention beside q, k and v.
struct DynamicTalkingHeadsOptions {
  OptTensor logits_proj, weights_proj;
  OptTensor x, m;      // tokens of the queries [B,T,dX] and of the keys [B,S,dM]
  OptTensor x2l, m2l;  // [dX,Hk,H], [dM,Hk,H]
  OptTensor x2w, m2w;  // [dX,H,Hv], [dM,H,Hv]
  OptTensor attn_mask;
  bool is_causal = false;
  std::optional<double> scale;
  OptTensor alpha;
  double dropout_p = 0.0;
  std::optional<int64_t> dropout_seed;
};

// talking_heads_attention whose dynamic terms are projections of tokens: x_logits = x x2l,
// m_logits = m m2l, x_weights = x x2w, m_weights = m m2w, each where its projection is given.
at::Tensor dynamic_talking_heads_attention(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v,
                                           const DynamicTalkingHeadsOptions& options);

// General bilinear multi-head attention (arXiv 2003.02436): of x [B,T,dX], m [B,S,dM],
// p [H,dX,dM] and p_out [H,dM,dY] -> [B,T,dY].
//
//   L[h,t,s] = x_t^T p_h m_s;  W = softmax or entmax of (L + attn_mask);
//   out_t = sum_h sum_s drop(W)[h,t,s] m_s^T p_out_h
//
// Multi-head and talking-heads layers are those of low rank. Masks, alpha (none: softmax) and
// dropout as in softmax_attention and entmax_attention, on which it runs.
at::Tensor bilinear_attention(const at::Tensor& x, const at::Tensor& m, const at::Tensor& p,
                              const at::Tensor& p_out, const OptTensor& attn_mask = {},
                              bool is_causal = false, const OptTensor& alpha = {},
                              double dropout_p = 0.0, std::optional<int64_t> dropout_seed = {});

// (p, p_out) with which bilinear_attention(x, m, p, p_out) is the layer of queries x wq, keys m wk,
// values m wv, talking_heads_attention of these and its heads' outputs times wo, summed. wq
// [Hk,dX,D], wk [Hk,dM,D], wv [Hv,dM,Dv], wo [Hv,Dv,dY]; logits_proj [Hk,H] and weights_proj
// [H,Hv], the identity where none (multi-head attention without both). scale is 1/sqrt(D) unless
// given.
std::tuple<at::Tensor, at::Tensor> bilinear_from_talking_heads(
    const at::Tensor& wq, const at::Tensor& wk, const at::Tensor& wv, const at::Tensor& wo,
    const OptTensor& logits_proj = {}, const OptTensor& weights_proj = {},
    std::optional<double> scale = {});

// Arguments of partial_attention beside q, k, v, positions and R.
struct PartialOptions {
  OptTensor mean;       // of the scaled scores: [S], [H,S], [1,T,S] or [H,T,S]; none: 0
  OptTensor attn_mask;  // a floating one is added after the reconstruction
  bool is_causal = false;
  std::optional<double> scale;
  OptTensor alpha;  // of entmax, 0-dim or [H]; none: softmax
  double dropout_p = 0.0;
  std::optional<int64_t> dropout_seed;
};

// Attention from partial computation (arXiv 2106.08823): P scores of a query are computed, the
// others follow from them linearly.
//
//   c[p]    = scale q . k[positions[p]] - mean[positions[p]], 0 where the query may not see that
//   key L[s]    = mean[s] + sum_p reconstruction[s,p] c[p] out     = drop(softmax or entmax of (L +
//   attn_mask)) v
//
// positions int64: common to all queries, [P] or by head [H,P], or own for each query, [1,T,P] or
// [H,T,P]; distinct, in any order. reconstruction: [S,P], [H,S,P], [1,T,S,P] or [H,T,S,P]. It and
// the mean have q's dtype, or are float32 where q is bfloat16. A selected key that a query may not
// see is not read. All have gradients, alpha and a floating mask too.
//
// Made of operators: with a reconstruction common to all queries c is the query and R the key of
// softmax_attention or entmax_attention: O(T) memory, 2 H T P (D + S) + 2 H T S Dv FLOPs. One of
// its own for each query, T S P numbers, forms the [B,H,T,S] scores.
at::Tensor partial_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& positions, const at::Tensor& reconstruction,
                             const PartialOptions& options = {});

// The same from the selected keys alone: k_selected [B,Hkv,P,D] for positions [P], [B,H,P,D] for
// positions [H,P].
at::Tensor partial_attention_selected(const at::Tensor& q, const at::Tensor& k_selected,
                                      const at::Tensor& v, const at::Tensor& positions,
                                      const at::Tensor& reconstruction,
                                      const PartialOptions& options = {});

// The `count` positions whose scores tell most about all, chosen greedily from the covariance of
// the scores [n,n] or [H,n,n] -> int64 [count] or [H,count]: each is the one that leaves the least
// residual, argmax_j |E_j|^2 / E_jj with E the covariance given those before; ties to the lowest.
// In float64. An error naming the rank when fewer are left: E_jj <= 1e-12 max C_jj counts as none.
at::Tensor greedy_positions(const at::Tensor& covariance, int64_t count);

// The least-squares reconstruction R = C[:,P] (C[P,P] + ridge I)^-1 of covariance C [n,n] or
// [H,n,n] and positions [P] or [H,P] -> [n,P] or [H,n,P], computed in float64. A singular C[P,P] is
// refused.
at::Tensor lmmse_reconstruction(const at::Tensor& covariance, const at::Tensor& positions,
                                double ridge = 0.0);

// Feature map phi of x [B,H,S,D] with weight [H,D,E] (input-major) and bias [H,E] -> [B,H,S,F].
// variant: "exp" (F = 2E), "softmax" (2E), "softmax_joint" (2E), "elu" (E), "relu" (E), "taylor"
// (1 + E + E^2), "exp_half" (E), "performer" (E). METHODS of each: docs/methods/hedgehog.md.
at::Tensor hedgehog_features(const at::Tensor& x, const at::Tensor& weight,
                             const OptTensor& bias = {}, std::string_view variant = "exp");

// y_t = sum_s (phi_q_t . phi_k_s) v_s / sum_s (phi_q_t . phi_k_s); phi_q [B,H,T,F],
// phi_k [B,Hkv,S,F], v [B,Hkv,S,Dv]; key_mask boolean [B,S]. A normaliser of exactly 0 gives zeros.
at::Tensor linear_attention(const at::Tensor& phi_q, const at::Tensor& phi_k, const at::Tensor& v,
                            const OptTensor& key_mask = {}, bool is_causal = false);

// Causal, continuing the state s [B,Hkv,F,Dv], z [B,Hkv,F] (both or neither; float32, float64 for
// float64 input). S keys are this call's own and S = T. Returns (out, s, z), fresh tensors.
std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_attention_state(
    const at::Tensor& phi_q, const at::Tensor& phi_k, const at::Tensor& v,
    const OptTensor& key_mask = {}, const OptTensor& s = {}, const OptTensor& z = {});

// Linear attention over hedgehog features of q (wq [H,D,E], bq [H,E]) and k (wk [Hkv,D,E],
// bk [Hkv,E]). For "exp" finite and equal to the formula at any finite input.
at::Tensor hedgehog_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& wq, const at::Tensor& wk, const OptTensor& bq = {},
                              const OptTensor& bk = {}, std::string_view variant = "exp",
                              const OptTensor& key_mask = {}, bool is_causal = false);

// The same, causal, continuing a state; m [B,Hkv,F] is the reference exponent per feature of "exp"
// (the true state is s * exp(m), z * exp(m); zeros for other maps). Returns (out, s, z, m).
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> hedgehog_attention_state(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& wq,
    const at::Tensor& wk, const OptTensor& bq = {}, const OptTensor& bk = {},
    std::string_view variant = "exp", const OptTensor& key_mask = {}, const OptTensor& s = {},
    const OptTensor& z = {}, const OptTensor& m = {});

// One token: q [B,H,1,D], k [B,Hkv,1,D], v [B,Hkv,1,Dv] -> [B,H,1,Dv]; s, z, m are updated in
// place. Forward only: inputs that require gradients are refused while gradients are recorded.
at::Tensor hedgehog_step_(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& wq, const at::Tensor& wk, const OptTensor& bq,
                          const OptTensor& bk, std::string_view variant, at::Tensor& s,
                          at::Tensor& z, at::Tensor& m);

// The full weight tensor [B,H,T,S] of softmax attention (for small T; rows without keys are zero).
// Differentiable.
at::Tensor softmax_attention_weights(const at::Tensor& q, const at::Tensor& k,
                                     const OptTensor& attn_mask = {}, bool is_causal = false,
                                     std::optional<double> scale = {});

// The same for entmax attention.
at::Tensor entmax_attention_weights(const at::Tensor& q, const at::Tensor& k,
                                    const at::Tensor& alpha, const OptTensor& attn_mask = {},
                                    bool is_causal = false, std::optional<double> scale = {});

// The mixed weights U [B,Hv,T,S] of talking-heads attention, which multiply v: rows need not sum to
// 1. The options' dropout must be 0.
at::Tensor talking_heads_attention_weights(const at::Tensor& q, const at::Tensor& k,
                                           const TalkingHeadsOptions& options = {});

// The same as the first for partial attention, of all keys k [B,Hkv,S,D]. The options' dropout must
// be 0.
at::Tensor partial_attention_weights(const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& positions, const at::Tensor& reconstruction,
                                     const PartialOptions& options = {});

// The same as the first for Hedgehog attention, computed so that it is finite for "exp" at any
// finite input.
at::Tensor hedgehog_attention_weights(const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& wq, const at::Tensor& wk,
                                      const OptTensor& bq = {}, const OptTensor& bk = {},
                                      std::string_view variant = "exp",
                                      const OptTensor& key_mask = {}, bool is_causal = false);

}  // namespace ops
}  // namespace hedgerow
