// Linear attention over given features: what the files of this folder, and hedgehog_attention,
// share. Contract: hedgerow/ops.h.
//
// Operators: linear_attention, linear_attention_state (public), linear_attention_forward (also
// gives 1 / normaliser, saved for the backward, and the state when want_state),
// linear_attention_backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "ops/common/checks.h"

namespace hedgerow::ops {

// What all of them take. s and z: both or neither.
struct LinearInputs {
  at::Tensor phi_q;  // [B,H,T,F]
  at::Tensor phi_k;  // [B,Hkv,S,F]
  at::Tensor v;      // [B,Hkv,S,Dv]
  OptTensor key_mask;
  bool is_causal = false;
  OptTensor s;  // [B,Hkv,F,Dv], accumulation dtype
  OptTensor z;  // [B,Hkv,F]
};
void check_linear_attention(const char* op, const LinearInputs& in);

// s [B,Hkv,F,Dv] and z [B,Hkv,F], both or neither, of the accumulation dtype of v [B,Hkv,S,Dv].
void check_state(const char* op, const at::Tensor& v, const c10::SymInt& features,
                 const OptTensor& s, const OptTensor& z);
// In calls that continue a state the keys are those of the queries: T = S.
void check_own_keys(const char* op, Named q, Named k);

// (out [B,H,T,Dv], inv_den [B,H,T], s, z): inv_den is 0 where the normaliser is; s and z have size
// [0] unless want_state.
using LinearForwardResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
LinearForwardResult linear_attention_composite(const LinearInputs& in, bool want_state);

// Gradients of phi_q, phi_k, v, s, z; the last two of size [0] without a state.
using LinearGrads = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
LinearGrads linear_attention_backward_composite(const at::Tensor& grad, const OptTensor& grad_s,
                                                const OptTensor& grad_z, const LinearInputs& in);

LinearForwardResult linear_attention_forward(const at::Tensor& phi_q, const at::Tensor& phi_k,
                                             const at::Tensor& v, const OptTensor& key_mask,
                                             bool is_causal, const OptTensor& s, const OptTensor& z,
                                             bool want_state);
LinearGrads linear_attention_backward(const at::Tensor& grad, const OptTensor& grad_s,
                                      const OptTensor& grad_z, const at::Tensor& phi_q,
                                      const at::Tensor& phi_k, const at::Tensor& v,
                                      const at::Tensor& out, const at::Tensor& inv_den,
                                      const OptTensor& key_mask, bool is_causal, const OptTensor& s,
                                      const OptTensor& z);

}  // namespace hedgerow::ops
