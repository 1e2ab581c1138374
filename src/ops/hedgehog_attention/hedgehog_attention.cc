#include "ops/hedgehog_attention/hedgehog_attention.h"

#include <torch/library.h>

#include "hedgerow/ops.h"
#include "ops/common/dispatch.h"
#include "ops/hedgehog_features/hedgehog_features.h"
#include "ops/linear_attention/linear_attention.h"

namespace hedgerow::ops {

void check_hedgehog_attention(const char* op, const HedgehogInputs& in) {
  const kernels::FeatureMap map = parse_feature_map(op, in.variant);
  check_inputs(op, {{"q", in.q}, {"k", in.k}, {"v", in.v}, {"wq", in.wq}, {"wk", in.wk}});
  check_qkv(op, {"q", in.q}, {"k", in.k}, {"v", in.v});
  check_map(op, {"q", in.q}, {"wq", in.wq}, "bq", in.bq);
  check_map(op, {"k", in.k}, {"wk", in.wk}, "bk", in.bk);
  check_same_size(op, {"wq", in.wq}, {"wk", in.wk}, 2, "width E");
  check_key_mask(op, in.key_mask, in.v.sym_size(0), in.v.sym_size(2), in.v);
  const c10::SymInt features = feature_width(map, in.wk.sym_size(2));
  check_state(op, in.v, features, in.s, in.z);
  if (!in.m) return;
  HEDGEROW_OP_CHECK(op, in.s.has_value(), "m must be given with s and z; got m alone");
  check_shape(op, {"m", *in.m}, {in.v.sym_size(0), in.v.sym_size(1), features}, "[B, Hkv, F]");
  HEDGEROW_OP_CHECK(op,
                    in.m->scalar_type() == in.s->scalar_type() && in.m->device() == in.s->device(),
                    "m must have the dtype and device of s; got ", dtype_text(in.m->scalar_type()),
                    " and ", dtype_text(in.s->scalar_type()));
}

void check_hedgehog_state(const char* op, const HedgehogInputs& in) {
  check_hedgehog_attention(op, in);
  check_own_keys(op, {"q", in.q}, {"k", in.k});
}

void check_hedgehog_step(const char* op, const HedgehogInputs& in) {
  check_hedgehog_attention(op, in);
  HEDGEROW_OP_CHECK(op, in.q.sym_size(2) == 1 && in.k.sym_size(2) == 1,
                    "takes one token, T = S = 1; got q shape ", shape_text(in.q), " and k shape ",
                    shape_text(in.k));
}

at::Tensor hedgehog_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& wq, const at::Tensor& wk, const OptTensor& bq,
                              const OptTensor& bk, std::string_view variant,
                              const OptTensor& key_mask, bool is_causal) {
  static const auto op = find_op<decltype(hedgehog_attention)>("hedgerow::hedgehog_attention");
  return op.call(q, k, v, wq, wk, bq, bk, variant, key_mask, is_causal);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> hedgehog_attention_state(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& wq,
    const at::Tensor& wk, const OptTensor& bq, const OptTensor& bk, std::string_view variant,
    const OptTensor& key_mask, const OptTensor& s, const OptTensor& z, const OptTensor& m) {
  static const auto op =
      find_op<decltype(hedgehog_attention_state)>("hedgerow::hedgehog_attention_state");
  return op.call(q, k, v, wq, wk, bq, bk, variant, key_mask, s, z, m);
}

at::Tensor hedgehog_step_(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& wq, const at::Tensor& wk, const OptTensor& bq,
                          const OptTensor& bk, std::string_view variant, at::Tensor& s,
                          at::Tensor& z, at::Tensor& m) {
  static const auto op = find_op<decltype(hedgehog_step_)>("hedgerow::hedgehog_step_");
  return op.call(q, k, v, wq, wk, bq, bk, variant, s, z, m);
}

HedgehogForwardResult hedgehog_attention_forward(const at::Tensor& q, const at::Tensor& k,
                                                 const at::Tensor& v, const at::Tensor& wq,
                                                 const at::Tensor& wk, const OptTensor& bq,
                                                 const OptTensor& bk, std::string_view variant,
                                                 const OptTensor& key_mask, bool is_causal,
                                                 const OptTensor& s, const OptTensor& z,
                                                 const OptTensor& m, bool want_state) {
  static const auto op =
      find_op<decltype(hedgehog_attention_forward)>("hedgerow::hedgehog_attention_forward");
  return op.call(q, k, v, wq, wk, bq, bk, variant, key_mask, is_causal, s, z, m, want_state);
}

HedgehogGrads hedgehog_attention_backward(
    const at::Tensor& grad, const OptTensor& grad_s, const OptTensor& grad_z, const at::Tensor& q,
    const at::Tensor& k, const at::Tensor& v, const at::Tensor& wq, const at::Tensor& wk,
    const OptTensor& bq, const OptTensor& bk, std::string_view variant, const at::Tensor& out,
    const at::Tensor& inv_den, const at::Tensor& row_exponent, const OptTensor& s_out,
    const OptTensor& z_out, const OptTensor& m_out, const OptTensor& key_mask, bool is_causal,
    const OptTensor& s, const OptTensor& z, const OptTensor& m) {
  static const auto op =
      find_op<decltype(hedgehog_attention_backward)>("hedgerow::hedgehog_attention_backward");
  return op.call(grad, grad_s, grad_z, q, k, v, wq, wk, bq, bk, variant, out, inv_den, row_exponent,
                 s_out, z_out, m_out, key_mask, is_causal, s, z, m);
}

}  // namespace hedgerow::ops

TORCH_LIBRARY_FRAGMENT(hedgerow, m) {
  m.def(
      "hedgehog_attention(Tensor q, Tensor k, Tensor v, Tensor wq, Tensor wk, Tensor? bq=None, "
      "Tensor? bk=None, "
      "str variant=\"exp\", Tensor? key_mask=None, bool is_causal=False) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "hedgehog_attention_state(Tensor q, Tensor k, Tensor v, Tensor wq, Tensor wk, Tensor? "
      "bq=None, "
      "Tensor? bk=None, str variant=\"exp\", Tensor? key_mask=None, Tensor? s=None, Tensor? "
      "z=None, Tensor? m=None) "
      "-> (Tensor out, Tensor s, Tensor z, Tensor m)",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "hedgehog_step_(Tensor q, Tensor k, Tensor v, Tensor wq, Tensor wk, Tensor? bq, Tensor? bk, "
      "str variant, "
      "Tensor(a!) s, Tensor(b!) z, Tensor(c!) m) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "hedgehog_attention_forward(Tensor q, Tensor k, Tensor v, Tensor wq, Tensor wk, Tensor? bq, "
      "Tensor? bk, "
      "str variant, Tensor? key_mask, bool is_causal, Tensor? s, Tensor? z, Tensor? m, bool "
      "want_state) -> "
      "(Tensor out, Tensor inv_den, Tensor row_exponent, Tensor s, Tensor z, Tensor m)",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "hedgehog_attention_backward(Tensor grad, Tensor? grad_s, Tensor? grad_z, Tensor q, Tensor "
      "k, Tensor v, "
      "Tensor wq, Tensor wk, Tensor? bq, Tensor? bk, str variant, Tensor out, Tensor inv_den, "
      "Tensor row_exponent, "
      "Tensor? s_out, Tensor? z_out, Tensor? m_out, Tensor? key_mask, bool is_causal, Tensor? s, "
      "Tensor? z, Tensor? m) -> "
      "(Tensor grad_q, Tensor grad_k, Tensor grad_v, Tensor grad_wq, Tensor grad_wk, Tensor "
      "grad_bq, Tensor grad_bk, "
      "Tensor grad_s, Tensor grad_z)",
      {at::Tag::pt2_compliant_tag});
}
