#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/common/dispatch.h"
#include "ops/linear_attention/linear_attention.h"

namespace hedgerow::ops {
namespace {

at::Tensor like(const at::Tensor& t) { return at::empty_symint(t.sym_sizes(), t.options()); }

LinearForwardResult forward_meta(const char* op, const LinearInputs& in, bool want_state) {
  check_linear_attention(op, in);
  const at::TensorOptions options = in.v.options();
  const at::TensorOptions accumulate = options.dtype(accumulate_dtype(in.v.scalar_type()));
  const auto B = in.phi_q.sym_size(0), H = in.phi_q.sym_size(1), T = in.phi_q.sym_size(2),
             F = in.phi_q.sym_size(3), Hkv = in.v.sym_size(1), Dv = in.v.sym_size(3);
  return {at::empty_symint({B, H, T, Dv}, options), at::empty_symint({B, H, T}, accumulate),
          want_state ? at::empty_symint({B, Hkv, F, Dv}, accumulate) : at::empty({0}, accumulate),
          want_state ? at::empty_symint({B, Hkv, F}, accumulate) : at::empty({0}, accumulate)};
}

at::Tensor linear_attention_meta(const at::Tensor& phi_q, const at::Tensor& phi_k,
                                 const at::Tensor& v, const OptTensor& key_mask, bool is_causal) {
  return std::get<0>(
      forward_meta("linear_attention", {phi_q, phi_k, v, key_mask, is_causal, {}, {}}, false));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_attention_state_meta(
    const at::Tensor& phi_q, const at::Tensor& phi_k, const at::Tensor& v,
    const OptTensor& key_mask, const OptTensor& s, const OptTensor& z) {
  const auto [out, inv_den, s_out, z_out] =
      forward_meta("linear_attention_state", {phi_q, phi_k, v, key_mask, true, s, z}, true);
  check_own_keys("linear_attention_state", {"phi_q", phi_q}, {"phi_k", phi_k});
  return {out, s_out, z_out};
}

LinearForwardResult linear_attention_forward_meta(const at::Tensor& phi_q, const at::Tensor& phi_k,
                                                  const at::Tensor& v, const OptTensor& key_mask,
                                                  bool is_causal, const OptTensor& s,
                                                  const OptTensor& z, bool want_state) {
  return forward_meta("linear_attention_forward", {phi_q, phi_k, v, key_mask, is_causal, s, z},
                      want_state);
}

LinearGrads linear_attention_backward_meta(const at::Tensor& grad, const OptTensor& grad_s,
                                           const OptTensor& grad_z, const at::Tensor& phi_q,
                                           const at::Tensor& phi_k, const at::Tensor& v,
                                           const at::Tensor& out, const at::Tensor& inv_den,
                                           const OptTensor& key_mask, bool is_causal,
                                           const OptTensor& s, const OptTensor& z) {
  check_linear_attention("linear_attention_backward", {phi_q, phi_k, v, key_mask, is_causal, s, z});
  const at::Tensor none = at::empty({0}, v.options());
  return {like(phi_q), like(phi_k), like(v), s ? like(*s) : none,
          z ? like(*z) : at::empty({0}, v.options())};
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Meta, m) {
  m.impl("linear_attention", hedgerow::ops::linear_attention_meta);
  m.impl("linear_attention_state", hedgerow::ops::linear_attention_state_meta);
  m.impl("linear_attention_forward", hedgerow::ops::linear_attention_forward_meta);
  m.impl("linear_attention_backward", hedgerow::ops::linear_attention_backward_meta);
}
