#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/common/dispatch.h"
#include "ops/common/path.h"
#include "ops/hedgehog_attention/hedgehog_attention.h"
#include "ops/hedgehog_features/hedgehog_features.h"
#include "ops/linear_attention/linear_attention.h"

namespace hedgerow::ops {
namespace {

// Memory as kernels want it.
HedgehogInputs laid_out(const HedgehogInputs& in) {
  HedgehogInputs t = in;
  t.q = rows_contiguous(in.q);
  t.k = rows_contiguous(in.k);
  t.v = rows_contiguous(in.v);
  t.wq = in.wq.contiguous();
  t.wk = in.wk.contiguous();
  t.bq = contiguous(in.bq);
  t.bk = contiguous(in.bk);
  t.s = contiguous(in.s);
  t.z = contiguous(in.z);
  t.m = contiguous(in.m);
  return t;
}

// What forward, backward and step have in common.
template <typename Params>
Params params_of(const HedgehogInputs& in) {
  Params p;
  p.dtype = kernel_dtype(in.q.scalar_type());
  p.map = feature_map(in);
  p.batch = in.q.size(0);
  p.heads = in.q.size(1);
  p.kv_heads = in.k.size(1);
  p.dim = in.q.size(3);
  p.width = in.wq.size(2);
  p.value_dim = in.v.size(3);
  p.q = const_view(in.q);
  p.k = const_view(in.k);
  p.v = const_view(in.v);
  p.wq = in.wq.const_data_ptr();
  p.wk = in.wk.const_data_ptr();
  p.bq = const_data(in.bq);
  p.bk = const_data(in.bk);
  if constexpr (!std::is_same_v<Params, kernels::HedgehogStep>) {
    p.is_causal = in.is_causal;
    p.queries = in.q.size(2);
    p.keys = in.k.size(2);
    p.key_mask = key_mask_view(in.key_mask);
    p.s_in = const_data(in.s);
    p.z_in = const_data(in.z);
    p.m_in = const_data(in.m);
  }
  return p;
}

HedgehogForwardResult run_forward(const char* op, const HedgehogInputs& given, bool want_state,
                                  bool want_saved) {
  check_hedgehog_attention(op, given);
  if (!use_fast(op, true, "")) return hedgehog_attention_composite(given, want_state);
  const HedgehogInputs in = laid_out(given);
  auto p = params_of<kernels::HedgehogForward>(in);
  const at::TensorOptions options = in.q.options();
  const at::TensorOptions accumulate = options.dtype(accumulate_dtype(in.q.scalar_type()));
  const int64_t features = kernels::feature_width(p.map, p.width);
  const at::Tensor out = fresh({p.batch, p.heads, p.queries, p.value_dim}, options);
  at::Tensor inv_den, exponent, s = at::empty({0}, accumulate), z = s, m = s;
  p.out = mut_view(out);
  if (want_saved) {
    inv_den = fresh({p.batch, p.heads, p.queries}, accumulate);
    exponent = fresh({p.batch, p.heads, p.queries}, accumulate);
    p.inv_den = inv_den.mutable_data_ptr();
    p.row_exponent = exponent.mutable_data_ptr();
  }
  if (want_state) {
    s = fresh({p.batch, p.kv_heads, features, p.value_dim}, accumulate);
    z = fresh({p.batch, p.kv_heads, features}, accumulate);
    m = fresh({p.batch, p.kv_heads, features}, accumulate);
    p.s_out = s.mutable_data_ptr();
    p.z_out = z.mutable_data_ptr();
    p.m_out = m.mutable_data_ptr();
  } else {
    z = at::empty({0}, accumulate);
    m = at::empty({0}, accumulate);
  }
  kernels::hedgehog_attention_forward(p);
  return {out, inv_den, exponent, s, z, m};
}

at::Tensor hedgehog_attention_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const at::Tensor& wq, const at::Tensor& wk, const OptTensor& bq,
                                  const OptTensor& bk, std::string_view variant,
                                  const OptTensor& key_mask, bool is_causal) {
  const HedgehogInputs in{q,        k,         v,  wq, wk, bq, bk, std::string(variant),
                          key_mask, is_causal, {}, {}, {}};
  return std::get<0>(run_forward("hedgehog_attention", in, false, false));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> hedgehog_attention_state_cpu(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& wq,
    const at::Tensor& wk, const OptTensor& bq, const OptTensor& bk, std::string_view variant,
    const OptTensor& key_mask, const OptTensor& s, const OptTensor& z, const OptTensor& m) {
  const HedgehogInputs in{q, k, v, wq, wk, bq, bk, std::string(variant), key_mask, true, s, z, m};
  check_hedgehog_state("hedgehog_attention_state", in);
  const auto r = run_forward("hedgehog_attention_state", in, true, false);
  return {std::get<0>(r), std::get<3>(r), std::get<4>(r), std::get<5>(r)};
}

at::Tensor hedgehog_step_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& wq, const at::Tensor& wk, const OptTensor& bq,
                             const OptTensor& bk, std::string_view variant, at::Tensor& s,
                             at::Tensor& z, at::Tensor& m) {
  const char* op = "hedgehog_step_";
  const HedgehogInputs given{q, k, v, wq, wk, bq, bk, std::string(variant), {}, true, s, z, m};
  check_hedgehog_step(op, given);
  const HedgehogInputs in = laid_out(given);
  if (!use_fast(op, true, "")) {
    const auto r = hedgehog_attention_composite(given, true);
    s.copy_(std::get<3>(r));
    z.copy_(std::get<4>(r));
    m.copy_(std::get<5>(r));
    return std::get<0>(r);
  }
  auto p = params_of<kernels::HedgehogStep>(in);
  p.s = in.s->mutable_data_ptr();
  p.z = in.z->mutable_data_ptr();
  p.m = in.m->mutable_data_ptr();
  const at::Tensor out = fresh({p.batch, p.heads, 1, p.value_dim}, q.options());
  p.out = mut_view(out);
  kernels::hedgehog_attention_step(p);
  if (!s.is_contiguous()) s.copy_(*in.s);
  if (!z.is_contiguous()) z.copy_(*in.z);
  if (!m.is_contiguous()) m.copy_(*in.m);
  return out;
}

HedgehogForwardResult hedgehog_attention_forward_cpu(const at::Tensor& q, const at::Tensor& k,
                                                     const at::Tensor& v, const at::Tensor& wq,
                                                     const at::Tensor& wk, const OptTensor& bq,
                                                     const OptTensor& bk, std::string_view variant,
                                                     const OptTensor& key_mask, bool is_causal,
                                                     const OptTensor& s, const OptTensor& z,
                                                     const OptTensor& m, bool want_state) {
  const HedgehogInputs in{q,        k,         v, wq, wk, bq, bk, std::string(variant),
                          key_mask, is_causal, s, z,  m};
  return run_forward("hedgehog_attention_forward", in, want_state, true);
}

HedgehogGrads hedgehog_attention_backward_cpu(
    const at::Tensor& grad, const OptTensor& grad_s, const OptTensor& grad_z, const at::Tensor& q,
    const at::Tensor& k, const at::Tensor& v, const at::Tensor& wq, const at::Tensor& wk,
    const OptTensor& bq, const OptTensor& bk, std::string_view variant, const at::Tensor& out,
    const at::Tensor& inv_den, const at::Tensor& row_exponent, const OptTensor& s_out,
    const OptTensor& z_out, const OptTensor& m_out, const OptTensor& key_mask, bool is_causal,
    const OptTensor& s, const OptTensor& z, const OptTensor& m) {
  const char* op = "hedgehog_attention_backward";
  const HedgehogInputs given{q,        k,         v, wq, wk, bq, bk, std::string(variant),
                             key_mask, is_causal, s, z,  m};
  check_hedgehog_attention(op, given);
  if (!use_fast(op, true, ""))
    return hedgehog_attention_backward_composite(grad, grad_s, grad_z, given, m_out);
  const HedgehogInputs in = laid_out(given);
  auto p = params_of<kernels::HedgehogBackward>(in);
  const c10::SymInt sizes[4] = {p.batch, p.heads, p.queries, p.value_dim};
  check_inputs(op, {{"grad", grad}, {"out", out}, {"v", v}});
  check_shape(op, {"grad", grad}, sizes, "[B, H, T, Dv]");
  check_shape(op, {"out", out}, sizes, "[B, H, T, Dv]");
  check_shape(op, {"inv_den", inv_den}, c10::SymIntArrayRef(sizes, 3), "[B, H, T]");
  check_shape(op, {"row_exponent", row_exponent}, c10::SymIntArrayRef(sizes, 3), "[B, H, T]");
  HEDGEROW_OP_CHECK(op, m_out || !(grad_s || grad_z),
                    "m_out must be given with grad_s and grad_z; got none");
  check_state(op, in.v, feature_width(p.map, p.width), s_out, z_out);
  HEDGEROW_OP_CHECK(op, m_out || !s_out, "m_out must be given with s_out and z_out; got none");
  const at::Tensor grad_rows = rows_contiguous(grad), out_rows = rows_contiguous(out),
                   inverse = inv_den.contiguous(), exponent = row_exponent.contiguous();
  const OptTensor gs = contiguous(grad_s), gz = contiguous(grad_z), reference = contiguous(m_out),
                  final_s = contiguous(s_out), final_z = contiguous(z_out);
  p.m_out = const_data(reference);
  p.s_out = const_data(final_s);
  p.z_out = const_data(final_z);
  p.out = const_view(out_rows);
  p.inv_den = inverse.const_data_ptr();
  p.row_exponent = exponent.const_data_ptr();
  p.grad_out = const_view(grad_rows);
  p.grad_s_out = const_data(gs);
  p.grad_z_out = const_data(gz);
  const auto like = [&](const OptTensor& t) {
    return t ? fresh(t->sizes(), t->options()) : at::empty({0}, in.q.options());
  };
  const auto data = [](const OptTensor& given, const at::Tensor& t) {
    return given ? t.mutable_data_ptr() : nullptr;
  };
  const at::Tensor dq = like(in.q), dk = like(in.k), dv = like(in.v), dwq = like(in.wq),
                   dwk = like(in.wk), dbq = like(in.bq), dbk = like(in.bk), ds = like(in.s),
                   dz = like(in.z);
  p.grad_q = mut_view(dq);
  p.grad_k = mut_view(dk);
  p.grad_v = mut_view(dv);
  p.grad_wq = dwq.mutable_data_ptr();
  p.grad_wk = dwk.mutable_data_ptr();
  p.grad_bq = data(in.bq, dbq);
  p.grad_bk = data(in.bk, dbk);
  p.grad_s_in = data(in.s, ds);
  p.grad_z_in = data(in.z, dz);
  kernels::hedgehog_attention_backward(p);
  return {dq, dk, dv, dwq, dwk, dbq, dbk, ds, dz};
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CPU, m) {
  m.impl("hedgehog_attention", hedgerow::ops::hedgehog_attention_cpu);
  m.impl("hedgehog_attention_state", hedgerow::ops::hedgehog_attention_state_cpu);
  m.impl("hedgehog_step_", hedgerow::ops::hedgehog_step_cpu);
  m.impl("hedgehog_attention_forward", hedgerow::ops::hedgehog_attention_forward_cpu);
  m.impl("hedgehog_attention_backward", hedgerow::ops::hedgehog_attention_backward_cpu);
}
