// Linear attention and Hedgehog feature maps. Torch-free; legend and tensor types: types.h.
//
//   y        = x W[h] + b[h]                    W [H,D,E] (input-major), b [H,E]
//   phi(x)   = feature map of y, width F        (performer also needs |x|^2)
//   out_t    = sum_s (phi_q_t . phi_k_s) v_s / sum_s (phi_q_t . phi_k_s)
//
// over the keys s that query t sees: all of them, or with is_causal s <= t + (S - T); a key whose
// mask byte is 0 is removed after the map and never read. There is no 1/sqrt(D) and no epsilon. A
// normaliser of exactly 0 (no key, or no common feature) gives zeros and zero gradients.
//
// Types: inputs, weights, outputs and gradients have `dtype`; accumulation, states and everything
// saved for the backward are float32 (float64 for float64, which always takes the reference). A
// state pointer is contiguous. "or null" marks what may be left out; everything else is required
// when its size is not 0, and every output is overwritten. Results are bitwise independent of the
// number of threads. Sizes of 0 work. The functions trust their arguments: callers check shapes.
// Source: Zhang et al., "The Hedgehog and the Porcupine", arXiv 2402.04347.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hedgerow/kernels/types.h"

namespace hedgerow::kernels {

// What is computed from y (width E); F follows.
enum class FeatureMap : uint8_t {
  kExp,           // [exp(y), exp(-y)]                        F = 2E
  kSoftmax,       // [softmax(y), softmax(-y)]                F = 2E
  kSoftmaxJoint,  // softmax over the 2E entries [2y, -2y]    F = 2E
  kElu,           // 1 + ELU(y)                               F = E
  kRelu,          // max(y, 0)                                F = E
  kTaylor,        // [1, y, vec(y y^T) / sqrt 2]              F = 1 + E + E^2
  kExpHalf,       // exp(y)                                   F = E
  kPerformer,     // exp(y - |x|^2 / 2) / sqrt E              F = E
};

// "exp", "softmax", "softmax_joint", "elu", "relu", "taylor", "exp_half", "performer".
std::string_view feature_map_name(FeatureMap map);
std::optional<FeatureMap> find_feature_map(std::string_view name);
// All names, ", " between them, for messages.
std::string feature_map_names();
int64_t feature_width(FeatureMap map, int64_t width);

// phi [B,H,S,F] of x [B,H,S,D]; the formula as it stands (exp overflows where exp does).
// 2 B H S D E FLOPs and the map.
struct FeaturesForward {
  DType dtype = DType::kFloat32;
  FeatureMap map = FeatureMap::kExp;
  int64_t batch = 0, heads = 0, rows = 0;  // B, H, S
  int64_t dim = 0, width = 0;              // D, E
  ConstTensor x;                           // [B,H,S,D]
  const void* weight = nullptr;            // [H,D,E] contiguous
  const void* bias = nullptr;              // [H,E] contiguous, or null
  MutTensor phi;                           // [B,H,S,F]
};
void hedgehog_features_forward(const FeaturesForward& p);

// Gradients of x, weight and bias for grad_phi.
struct FeaturesBackward {
  DType dtype = DType::kFloat32;
  FeatureMap map = FeatureMap::kExp;
  int64_t batch = 0, heads = 0, rows = 0;
  int64_t dim = 0, width = 0;
  ConstTensor x;                 // [B,H,S,D]
  const void* weight = nullptr;  // [H,D,E]
  const void* bias = nullptr;    // [H,E], or null
  ConstTensor grad_phi;          // [B,H,S,F]
  MutTensor grad_x;              // [B,H,S,D]
  void* grad_weight = nullptr;   // [H,D,E] contiguous
  void* grad_bias = nullptr;     // [H,E] contiguous, or null
};
void hedgehog_features_backward(const FeaturesBackward& p);

// Linear attention over given features. The state counts as keys before the call's own that every
// query sees: S = sum phi_k v^T, z = sum phi_k. Without s_in and z_in it is zero. s_out and z_out
// receive the state after all S keys and may be s_in and z_in themselves. About 4 F Dv FLOPs for
// each query and key; scratch O(chunk) for each thread.
struct LinearForward {
  DType dtype = DType::kFloat32;
  bool is_causal = false;
  int64_t batch = 0, heads = 0, kv_heads = 0;  // B, H, Hkv
  int64_t queries = 0, keys = 0;               // T, S
  int64_t features = 0, value_dim = 0;         // F, Dv
  ConstTensor phi_q;                           // [B,H,T,F]
  ConstTensor phi_k;                           // [B,Hkv,S,F]
  ConstTensor v;                               // [B,Hkv,S,Dv]
  KeyMask key_mask;                            // [B,S]
  const void* s_in = nullptr;                  // [B,Hkv,F,Dv], or null
  const void* z_in = nullptr;                  // [B,Hkv,F], or null (both or neither)
  void* s_out = nullptr;                       // [B,Hkv,F,Dv], or null
  void* z_out = nullptr;                       // [B,Hkv,F], or null
  MutTensor out;                               // [B,H,T,Dv]
  void* inv_den = nullptr;  // [B,H,T] contiguous: 1 / normaliser, 0 where it is 0; or null
};
void linear_attention_forward(const LinearForward& p);

// grad_s_in and grad_z_in are the gradients of the initial state, grad_s_out and grad_z_out those
// given for the final one (null: zero).
struct LinearBackward {
  DType dtype = DType::kFloat32;
  bool is_causal = false;
  int64_t batch = 0, heads = 0, kv_heads = 0;
  int64_t queries = 0, keys = 0;
  int64_t features = 0, value_dim = 0;
  ConstTensor phi_q, phi_k, v;
  KeyMask key_mask;
  const void* s_in = nullptr;  // as in the forward
  const void* z_in = nullptr;
  ConstTensor out;                   // [B,H,T,Dv] of the forward
  const void* inv_den = nullptr;     // [B,H,T] of the forward
  ConstTensor grad_out;              // [B,H,T,Dv]
  const void* grad_s_out = nullptr;  // [B,Hkv,F,Dv], or null
  const void* grad_z_out = nullptr;  // [B,Hkv,F], or null
  MutTensor grad_phi_q;              // [B,H,T,F]
  MutTensor grad_phi_k;              // [B,Hkv,S,F]
  MutTensor grad_v;                  // [B,Hkv,S,Dv]
  void* grad_s_in = nullptr;         // [B,Hkv,F,Dv], or null
  void* grad_z_in = nullptr;         // [B,Hkv,F], or null
};
void linear_attention_backward(const LinearBackward& p);

// One token: s += phi_k v^T, z += phi_k, out = phi_q s / phi_q . z; row 0 of each tensor.
struct LinearStep {
  DType dtype = DType::kFloat32;
  int64_t batch = 0, heads = 0, kv_heads = 0;
  int64_t features = 0, value_dim = 0;
  ConstTensor phi_q, phi_k, v;  // [B,H,1,F], [B,Hkv,1,F], [B,Hkv,1,Dv]
  void* s = nullptr;            // [B,Hkv,F,Dv], updated in place
  void* z = nullptr;            // [B,Hkv,F], updated in place
  MutTensor out;                // [B,H,1,Dv]
};
void linear_attention_step(const LinearStep& p);

// Linear attention over the Hedgehog features of q and k, without storing the features of all
// tokens. For kExp the result is finite and equal to the formula for every finite input, in linear
// time: exponents are kept relative to a reference per signed feature (a key's own y, raised when a
// visible key exceeds it) and to a maximum per query; a later key never touches an earlier row.
//
// State of kExp: the true sums are s * exp(m) and z * exp(m), m a reference exponent per feature
// that carries no gradient. A feature with s = 0 and z = 0 has seen no key; its m is not used, and
// is 0 in m_out. For the other maps m_in is not read and m_out, if given, is filled with 0.
struct HedgehogForward {
  DType dtype = DType::kFloat32;
  FeatureMap map = FeatureMap::kExp;
  bool is_causal = false;
  int64_t batch = 0, heads = 0, kv_heads = 0;   // B, H, Hkv
  int64_t queries = 0, keys = 0;                // T, S
  int64_t dim = 0, width = 0, value_dim = 0;    // D, E, Dv
  ConstTensor q;                                // [B,H,T,D]
  ConstTensor k;                                // [B,Hkv,S,D]
  ConstTensor v;                                // [B,Hkv,S,Dv]
  const void *wq = nullptr, *wk = nullptr;      // [H,D,E], [Hkv,D,E] contiguous
  const void *bq = nullptr, *bk = nullptr;      // [H,E], [Hkv,E] contiguous, each or null
  KeyMask key_mask;                             // [B,S]
  const void *s_in = nullptr, *z_in = nullptr;  // [B,Hkv,F,Dv], [B,Hkv,F], or null
  const void* m_in = nullptr;                   // [B,Hkv,F], or null (then 0)
  void *s_out = nullptr, *z_out = nullptr;      // may be s_in, z_in; or null
  void* m_out = nullptr;                        // [B,Hkv,F], may be m_in; or null
  MutTensor out;                                // [B,H,T,Dv]
  // Saved for the backward, [B,H,T] contiguous, or both null: the normaliser of row t is
  // 2^row_exponent / inv_den (row_exponent is 0 for maps other than kExp; inv_den is 0 where the
  // normaliser is).
  void* inv_den = nullptr;
  void* row_exponent = nullptr;
};
void hedgehog_attention_forward(const HedgehogForward& p);

// Gradients of all inputs. grad_s_out and grad_z_out are those of the forward's s_out and z_out,
// which are relative to m_out; grad_s_in and grad_z_in those of s_in and z_in (relative to m_in).
struct HedgehogBackward {
  DType dtype = DType::kFloat32;
  FeatureMap map = FeatureMap::kExp;
  bool is_causal = false;
  int64_t batch = 0, heads = 0, kv_heads = 0;
  int64_t queries = 0, keys = 0;
  int64_t dim = 0, width = 0, value_dim = 0;
  ConstTensor q, k, v;
  const void *wq = nullptr, *wk = nullptr;
  const void *bq = nullptr, *bk = nullptr;  // each or null
  KeyMask key_mask;
  const void *s_in = nullptr, *z_in = nullptr;  // as in the forward, before the call
  const void* m_in = nullptr;
  const void* m_out = nullptr;  // of the forward; needed with grad_s_out, and for kExp with s_out
  // Of the forward, or both null: without is_causal they save summing the keys again.
  const void *s_out = nullptr, *z_out = nullptr;
  ConstTensor out;                                          // [B,H,T,Dv] of the forward
  const void *inv_den = nullptr, *row_exponent = nullptr;   // [B,H,T] of the forward
  ConstTensor grad_out;                                     // [B,H,T,Dv]
  const void *grad_s_out = nullptr, *grad_z_out = nullptr;  // each or null (zero)
  MutTensor grad_q;                                         // [B,H,T,D]
  MutTensor grad_k;                                         // [B,Hkv,S,D]
  MutTensor grad_v;                                         // [B,Hkv,S,Dv]
  void *grad_wq = nullptr, *grad_wk = nullptr;              // [H,D,E], [Hkv,D,E] contiguous
  void *grad_bq = nullptr, *grad_bk = nullptr;              // [H,E], [Hkv,E], each or null
  void *grad_s_in = nullptr, *grad_z_in = nullptr;          // each or null
};
void hedgehog_attention_backward(const HedgehogBackward& p);

// One token for all heads: the state is updated in place, then read. As one causal call with T = 1.
struct HedgehogStep {
  DType dtype = DType::kFloat32;
  FeatureMap map = FeatureMap::kExp;
  int64_t batch = 0, heads = 0, kv_heads = 0;
  int64_t dim = 0, width = 0, value_dim = 0;
  ConstTensor q, k, v;                      // [B,H,1,D], [B,Hkv,1,D], [B,Hkv,1,Dv]
  const void *wq = nullptr, *wk = nullptr;  // [H,D,E], [Hkv,D,E]
  const void *bq = nullptr, *bk = nullptr;  // each or null
  void *s = nullptr, *z = nullptr;          // [B,Hkv,F,Dv], [B,Hkv,F]
  void* m = nullptr;                        // [B,Hkv,F]; only kExp reads and writes it
  MutTensor out;                            // [B,H,1,Dv]
};
void hedgehog_attention_step(const HedgehogStep& p);

}  // namespace hedgerow::kernels
