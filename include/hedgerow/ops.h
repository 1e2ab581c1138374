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

// The same for Hedgehog attention, computed so that it is finite for "exp" at any finite input.
at::Tensor hedgehog_attention_weights(const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& wq, const at::Tensor& wk,
                                      const OptTensor& bq = {}, const OptTensor& bk = {},
                                      std::string_view variant = "exp",
                                      const OptTensor& key_mask = {}, bool is_causal = false);

}  // namespace ops
}  // namespace hedgerow
