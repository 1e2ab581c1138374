// The definition, in ATen operators: chunks of queries with a running state, so that length costs
// linear time and memory here too.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>

#include "ops/common/composite_gradient.h"
#include "ops/common/dispatch.h"
#include "ops/common/grouped.h"
#include "ops/linear_attention/linear_attention.h"

namespace hedgerow::ops {
namespace {

constexpr int64_t kChunk = 64;

struct State {
  at::Tensor s;  // [B,Hkv,1,F,Dv]
  at::Tensor z;  // [B,Hkv,1,F]

  void absorb(const at::Tensor& k, const at::Tensor& v) {  // [B,Hkv,1,n,F], [B,Hkv,1,n,Dv]
    s = s + at::matmul(k.transpose(-1, -2), v);
    z = z + k.sum(-2);
  }
};

}  // namespace

LinearForwardResult linear_attention_composite(const LinearInputs& in, bool want_state) {
  const at::ScalarType dtype = accumulate_dtype(in.v.scalar_type());
  const int64_t T = in.phi_q.size(2), S = in.v.size(2), F = in.phi_k.size(3), Dv = in.v.size(3);
  const GroupedKeys keys = clean_keys(in.phi_k.to(dtype), in.v.to(dtype), in.key_mask);
  const at::Tensor q = group_heads(in.phi_q.to(dtype), in.v.size(1));  // [B,Hkv,G,T,F]
  const at::Tensor &k = keys.k, &v = keys.v;
  const at::TensorOptions options = v.options().requires_grad(false);
  State state{in.s ? in.s->unsqueeze(2) : at::zeros({v.size(0), v.size(1), 1, F, Dv}, options),
              in.z ? in.z->unsqueeze(2) : at::zeros({v.size(0), v.size(1), 1, F}, options)};

  at::Tensor num, den;  // [B,Hkv,G,T,Dv], [B,Hkv,G,T,1]
  if (!in.is_causal) {
    state.absorb(k, v);
    num = at::matmul(q, state.s);
    den = at::matmul(q, state.z.unsqueeze(-1));
  } else {
    const CausalSpan span(T, S);
    std::vector<at::Tensor> nums, dens;
    state.absorb(k.narrow(-2, 0, span.prefix), v.narrow(-2, 0, span.prefix));
    if (span.blind > 0) {  // queries before the first key see the state at most
      const at::Tensor chunk = q.narrow(-2, 0, span.blind);
      nums.push_back(at::matmul(chunk, state.s));
      dens.push_back(at::matmul(chunk, state.z.unsqueeze(-1)));
    }
    for (int64_t at = 0; at < span.pairs; at += kChunk) {
      const int64_t n = std::min(kChunk, span.pairs - at);
      const at::Tensor qc = q.narrow(-2, span.blind + at, n),
                       kc = k.narrow(-2, span.prefix + at, n),
                       vc = v.narrow(-2, span.prefix + at, n);
      const at::Tensor weights = at::matmul(qc, kc.transpose(-1, -2)).tril();  // [B,Hkv,G,n,n]
      nums.push_back(at::matmul(qc, state.s) + at::matmul(weights, vc));
      dens.push_back(at::matmul(qc, state.z.unsqueeze(-1)) + weights.sum(-1, true));
      state.absorb(kc, vc);
    }
    num = nums.empty() ? at::matmul(q, state.s) : at::cat(nums, -2);
    den = dens.empty() ? at::matmul(q, state.z.unsqueeze(-1)) : at::cat(dens, -2);
  }
  const NormalisedRows rows = normalise_rows(num, den, keys.poisoned_rows(T, in.is_causal));
  const at::Tensor none = at::empty({0}, options);
  const at::Tensor lost = keys.bad.any(-1);  // [B,Hkv]: the state holds what is not finite
  return {rows.out.to(in.v.scalar_type()), rows.inv_den,
          want_state
              ? state.s.squeeze(2).masked_fill(lost.unsqueeze(-1).unsqueeze(-1), std::nan(""))
              : none,
          want_state ? state.z.squeeze(2).masked_fill(lost.unsqueeze(-1), std::nan("")) : none};
}

LinearGrads linear_attention_backward_composite(const at::Tensor& grad, const OptTensor& grad_s,
                                                const OptTensor& grad_z, const LinearInputs& in) {
  const bool has_state = in.s.has_value(), state_grads = grad_s.has_value() || grad_z.has_value();
  const auto forward = [&](const std::vector<at::Tensor>& t) -> std::vector<at::Tensor> {
    LinearInputs moved = in;
    moved.phi_q = t[0];
    moved.phi_k = t[1];
    moved.v = t[2];
    moved.s = optional(t[3]);
    moved.z = optional(t[4]);
    const auto [out, inv_den, s, z] = linear_attention_composite(moved, state_grads);
    return {out, s, z};
  };
  const auto g = composite_gradient(
      forward, {in.phi_q, in.phi_k, in.v, in.s.value_or(at::Tensor()), in.z.value_or(at::Tensor())},
      {true, true, true, has_state, has_state},
      {grad, grad_s.value_or(at::Tensor()), grad_z.value_or(at::Tensor())});
  const at::Tensor none = at::empty({0}, in.v.options().requires_grad(false));
  return {or_zeros(g[0], in.phi_q), or_zeros(g[1], in.phi_k), or_zeros(g[2], in.v),
          has_state ? or_zeros(g[3], *in.s) : none, has_state ? or_zeros(g[4], *in.z) : none};
}

namespace {

at::Tensor linear_attention_any(const at::Tensor& phi_q, const at::Tensor& phi_k,
                                const at::Tensor& v, const OptTensor& key_mask, bool is_causal) {
  const LinearInputs in{phi_q, phi_k, v, key_mask, is_causal, {}, {}};
  check_linear_attention("linear_attention", in);
  return std::get<0>(linear_attention_composite(in, false));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_attention_state_any(
    const at::Tensor& phi_q, const at::Tensor& phi_k, const at::Tensor& v,
    const OptTensor& key_mask, const OptTensor& s, const OptTensor& z) {
  const LinearInputs in{phi_q, phi_k, v, key_mask, true, s, z};
  check_linear_attention("linear_attention_state", in);
  check_own_keys("linear_attention_state", {"phi_q", phi_q}, {"phi_k", phi_k});
  const auto [out, inv_den, s_out, z_out] = linear_attention_composite(in, true);
  return {out, s_out, z_out};
}

LinearForwardResult linear_attention_forward_any(const at::Tensor& phi_q, const at::Tensor& phi_k,
                                                 const at::Tensor& v, const OptTensor& key_mask,
                                                 bool is_causal, const OptTensor& s,
                                                 const OptTensor& z, bool want_state) {
  const LinearInputs in{phi_q, phi_k, v, key_mask, is_causal, s, z};
  check_linear_attention("linear_attention_forward", in);
  return linear_attention_composite(in, want_state);
}

LinearGrads linear_attention_backward_any(const at::Tensor& grad, const OptTensor& grad_s,
                                          const OptTensor& grad_z, const at::Tensor& phi_q,
                                          const at::Tensor& phi_k, const at::Tensor& v,
                                          const at::Tensor& out, const at::Tensor& inv_den,
                                          const OptTensor& key_mask, bool is_causal,
                                          const OptTensor& s, const OptTensor& z) {
  const LinearInputs in{phi_q, phi_k, v, key_mask, is_causal, s, z};
  check_linear_attention("linear_attention_backward", in);
  return linear_attention_backward_composite(grad, grad_s, grad_z, in);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CompositeExplicitAutograd, m) {
  m.impl("linear_attention", hedgerow::ops::linear_attention_any);
  m.impl("linear_attention_state", hedgerow::ops::linear_attention_state_any);
  m.impl("linear_attention_forward", hedgerow::ops::linear_attention_forward_any);
  m.impl("linear_attention_backward", hedgerow::ops::linear_attention_backward_any);
}
