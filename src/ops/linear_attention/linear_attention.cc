#include "ops/linear_attention/linear_attention.h"

#include <torch/library.h>

#include "hedgerow/ops.h"
#include "ops/common/dispatch.h"

namespace hedgerow::ops {

void check_state(const char* op, const at::Tensor& v, const c10::SymInt& features,
                 const OptTensor& s, const OptTensor& z) {
  HEDGEROW_OP_CHECK(op, s.has_value() == z.has_value(),
                    "s and z must be given both or neither; got only ", s ? "s" : "z");
  if (!s) return;
  const c10::SymInt batch = v.sym_size(0), heads = v.sym_size(1), value_dim = v.sym_size(3);
  check_shape(op, {"s", *s}, {batch, heads, features, value_dim}, "[B, Hkv, F, Dv]");
  check_shape(op, {"z", *z}, {batch, heads, features}, "[B, Hkv, F]");
  const at::ScalarType dtype = accumulate_dtype(v.scalar_type());
  HEDGEROW_OP_CHECK(op, s->scalar_type() == dtype && z->scalar_type() == dtype, "s and z must be ",
                    dtype_text(dtype), " for ", dtype_text(v.scalar_type()), " input; got ",
                    dtype_text(s->scalar_type()), " and ", dtype_text(z->scalar_type()));
  HEDGEROW_OP_CHECK(op, s->device() == v.device() && z->device() == v.device(),
                    "s and z must be on the inputs' device ", v.device().str(), "; got ",
                    s->device().str(), " and ", z->device().str());
}

void check_own_keys(const char* op, Named q, Named k) {
  HEDGEROW_OP_CHECK(op, q.tensor.sym_size(2) == k.tensor.sym_size(2),
                    "a call that continues a state has one key for each query: ", q.name, " and ",
                    k.name, " must have the same length (dimension 2); got ", q.name, " shape ",
                    shape_text(q.tensor), " and ", k.name, " shape ", shape_text(k.tensor));
}

void check_linear_attention(const char* op, const LinearInputs& in) {
  check_inputs(op, {{"phi_q", in.phi_q}, {"phi_k", in.phi_k}, {"v", in.v}});
  check_qkv(op, {"phi_q", in.phi_q}, {"phi_k", in.phi_k}, {"v", in.v});
  check_key_mask(op, in.key_mask, in.v.sym_size(0), in.v.sym_size(2), in.v);
  check_state(op, in.v, in.phi_k.sym_size(3), in.s, in.z);
}

at::Tensor linear_attention(const at::Tensor& phi_q, const at::Tensor& phi_k, const at::Tensor& v,
                            const OptTensor& key_mask, bool is_causal) {
  static const auto op = find_op<decltype(linear_attention)>("hedgerow::linear_attention");
  return op.call(phi_q, phi_k, v, key_mask, is_causal);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_attention_state(
    const at::Tensor& phi_q, const at::Tensor& phi_k, const at::Tensor& v,
    const OptTensor& key_mask, const OptTensor& s, const OptTensor& z) {
  static const auto op =
      find_op<decltype(linear_attention_state)>("hedgerow::linear_attention_state");
  return op.call(phi_q, phi_k, v, key_mask, s, z);
}

LinearForwardResult linear_attention_forward(const at::Tensor& phi_q, const at::Tensor& phi_k,
                                             const at::Tensor& v, const OptTensor& key_mask,
                                             bool is_causal, const OptTensor& s, const OptTensor& z,
                                             bool want_state) {
  static const auto op =
      find_op<decltype(linear_attention_forward)>("hedgerow::linear_attention_forward");
  return op.call(phi_q, phi_k, v, key_mask, is_causal, s, z, want_state);
}

LinearGrads linear_attention_backward(const at::Tensor& grad, const OptTensor& grad_s,
                                      const OptTensor& grad_z, const at::Tensor& phi_q,
                                      const at::Tensor& phi_k, const at::Tensor& v,
                                      const at::Tensor& out, const at::Tensor& inv_den,
                                      const OptTensor& key_mask, bool is_causal, const OptTensor& s,
                                      const OptTensor& z) {
  static const auto op =
      find_op<decltype(linear_attention_backward)>("hedgerow::linear_attention_backward");
  return op.call(grad, grad_s, grad_z, phi_q, phi_k, v, out, inv_den, key_mask, is_causal, s, z);
}

}  // namespace hedgerow::ops

TORCH_LIBRARY_FRAGMENT(hedgerow, m) {
  m.def(
      "linear_attention(Tensor phi_q, Tensor phi_k, Tensor v, Tensor? key_mask=None, bool "
      "is_causal=False) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "linear_attention_state(Tensor phi_q, Tensor phi_k, Tensor v, Tensor? key_mask=None, Tensor? "
      "s=None, "
      "Tensor? z=None) -> (Tensor out, Tensor s, Tensor z)",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "linear_attention_forward(Tensor phi_q, Tensor phi_k, Tensor v, Tensor? key_mask, bool "
      "is_causal, Tensor? s, "
      "Tensor? z, bool want_state) -> (Tensor out, Tensor inv_den, Tensor s, Tensor z)",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "linear_attention_backward(Tensor grad, Tensor? grad_s, Tensor? grad_z, Tensor phi_q, Tensor "
      "phi_k, Tensor v, "
      "Tensor out, Tensor inv_den, Tensor? key_mask, bool is_causal, Tensor? s, Tensor? z) -> "
      "(Tensor grad_phi_q, Tensor grad_phi_k, Tensor grad_v, Tensor grad_s, Tensor grad_z)",
      {at::Tag::pt2_compliant_tag});
}
