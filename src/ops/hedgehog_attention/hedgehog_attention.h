// Hedgehog attention: what its files share. Contract: hedgerow/ops.h.
//
// Operators: hedgehog_attention, hedgehog_attention_state, hedgehog_step_ (public),
// hedgehog_attention_forward (also gives what the backward saves, and the state when want_state)
// and hedgehog_attention_backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <tuple>

#include "hedgerow/kernels/linear.h"
#include "ops/common/checks.h"

namespace hedgerow::ops {

// What all of them take. s and z: both or neither; m only with them.
struct HedgehogInputs {
  at::Tensor q, k, v;  // [B,H,T,D], [B,Hkv,S,D], [B,Hkv,S,Dv]
  at::Tensor wq, wk;   // [H,D,E], [Hkv,D,E]
  OptTensor bq, bk;    // [H,E], [Hkv,E]
  std::string variant;
  OptTensor key_mask;  // boolean [B,S]
  bool is_causal = false;
  OptTensor s, z, m;  // [B,Hkv,F,Dv], [B,Hkv,F], [B,Hkv,F], accumulation dtype
};
void check_hedgehog_attention(const char* op, const HedgehogInputs& in);
void check_hedgehog_state(const char* op, const HedgehogInputs& in);
void check_hedgehog_step(const char* op, const HedgehogInputs& in);

inline kernels::FeatureMap feature_map(const HedgehogInputs& in) {
  return *kernels::find_feature_map(in.variant);
}

// (out [B,H,T,Dv], inv_den [B,H,T], row_exponent [B,H,T], s, z, m): the normaliser of a row is
// 2^row_exponent / inv_den; the last three have size [0] unless want_state.
using HedgehogForwardResult =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
HedgehogForwardResult hedgehog_attention_composite(const HedgehogInputs& in, bool want_state);

// Weights [B,H,T,S] of the accumulation dtype, for the same arguments without a state; v is not
// used.
at::Tensor hedgehog_weights_composite(const HedgehogInputs& in);

// Gradients of q, k, v, wq, wk, bq, bk, s, z; of size [0] for what is absent.
using HedgehogGrads = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor,
                                 at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
HedgehogGrads hedgehog_attention_backward_composite(const at::Tensor& grad, const OptTensor& grad_s,
                                                    const OptTensor& grad_z,
                                                    const HedgehogInputs& in,
                                                    const OptTensor& m_out);

HedgehogForwardResult hedgehog_attention_forward(const at::Tensor& q, const at::Tensor& k,
                                                 const at::Tensor& v, const at::Tensor& wq,
                                                 const at::Tensor& wk, const OptTensor& bq,
                                                 const OptTensor& bk, std::string_view variant,
                                                 const OptTensor& key_mask, bool is_causal,
                                                 const OptTensor& s, const OptTensor& z,
                                                 const OptTensor& m, bool want_state);
// m_out: the forward's, given with grad_s and grad_z, and with s_out and z_out. These two are its
// state as well, or absent; without is_causal they save work.
HedgehogGrads hedgehog_attention_backward(
    const at::Tensor& grad, const OptTensor& grad_s, const OptTensor& grad_z, const at::Tensor& q,
    const at::Tensor& k, const at::Tensor& v, const at::Tensor& wq, const at::Tensor& wk,
    const OptTensor& bq, const OptTensor& bk, std::string_view variant, const at::Tensor& out,
    const at::Tensor& inv_den, const at::Tensor& row_exponent, const OptTensor& s_out,
    const OptTensor& z_out, const OptTensor& m_out, const OptTensor& key_mask, bool is_causal,
    const OptTensor& s, const OptTensor& z, const OptTensor& m);

}  // namespace hedgerow::ops
