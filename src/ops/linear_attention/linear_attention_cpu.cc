#include <ATen/ATen.h>
#include <torch/library.h>

#include "hedgerow/kernels/linear.h"
#include "ops/common/dispatch.h"
#include "ops/common/path.h"
#include "ops/linear_attention/linear_attention.h"

namespace hedgerow::ops {
namespace {

// Memory as kernels want it.
LinearInputs laid_out(const LinearInputs& in) {
  return {rows_contiguous(in.phi_q),
          rows_contiguous(in.phi_k),
          rows_contiguous(in.v),
          in.key_mask,
          in.is_causal,
          contiguous(in.s),
          contiguous(in.z)};
}

template <typename Params>
Params params_of(const LinearInputs& in) {
  Params p;
  p.dtype = kernel_dtype(in.v.scalar_type());
  p.is_causal = in.is_causal;
  p.batch = in.phi_q.size(0);
  p.heads = in.phi_q.size(1);
  p.kv_heads = in.v.size(1);
  p.queries = in.phi_q.size(2);
  p.keys = in.v.size(2);
  p.features = in.phi_q.size(3);
  p.value_dim = in.v.size(3);
  p.phi_q = const_view(in.phi_q);
  p.phi_k = const_view(in.phi_k);
  p.v = const_view(in.v);
  p.key_mask = key_mask_view(in.key_mask);
  p.s_in = const_data(in.s);
  p.z_in = const_data(in.z);
  return p;
}

LinearForwardResult run_forward(const char* op, const LinearInputs& given, bool want_state,
                                bool want_saved) {
  check_linear_attention(op, given);
  if (!use_fast(op, true, "")) return linear_attention_composite(given, want_state);
  const LinearInputs in = laid_out(given);
  auto p = params_of<kernels::LinearForward>(in);
  const at::TensorOptions options = in.v.options();
  const at::TensorOptions accumulate = options.dtype(accumulate_dtype(in.v.scalar_type()));
  const at::Tensor out = fresh({p.batch, p.heads, p.queries, p.value_dim}, options);
  at::Tensor inv_den, s = at::empty({0}, accumulate), z = at::empty({0}, accumulate);
  p.out = mut_view(out);
  if (want_saved) {
    inv_den = fresh({p.batch, p.heads, p.queries}, accumulate);
    p.inv_den = inv_den.mutable_data_ptr();
  }
  if (want_state) {
    s = fresh({p.batch, p.kv_heads, p.features, p.value_dim}, accumulate);
    z = fresh({p.batch, p.kv_heads, p.features}, accumulate);
    p.s_out = s.mutable_data_ptr();
    p.z_out = z.mutable_data_ptr();
  }
  kernels::linear_attention_forward(p);
  return {out, inv_den, s, z};
}

at::Tensor linear_attention_cpu(const at::Tensor& phi_q, const at::Tensor& phi_k,
                                const at::Tensor& v, const OptTensor& key_mask, bool is_causal) {
  return std::get<0>(run_forward("linear_attention", {phi_q, phi_k, v, key_mask, is_causal, {}, {}},
                                 false, false));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_attention_state_cpu(
    const at::Tensor& phi_q, const at::Tensor& phi_k, const at::Tensor& v,
    const OptTensor& key_mask, const OptTensor& s, const OptTensor& z) {
  const LinearInputs in{phi_q, phi_k, v, key_mask, true, s, z};
  check_linear_attention("linear_attention_state", in);
  check_own_keys("linear_attention_state", {"phi_q", phi_q}, {"phi_k", phi_k});
  const auto [out, inv_den, s_out, z_out] = run_forward("linear_attention_state", in, true, false);
  return {out, s_out, z_out};
}

LinearForwardResult linear_attention_forward_cpu(const at::Tensor& phi_q, const at::Tensor& phi_k,
                                                 const at::Tensor& v, const OptTensor& key_mask,
                                                 bool is_causal, const OptTensor& s,
                                                 const OptTensor& z, bool want_state) {
  return run_forward("linear_attention_forward", {phi_q, phi_k, v, key_mask, is_causal, s, z},
                     want_state, true);
}

LinearGrads linear_attention_backward_cpu(const at::Tensor& grad, const OptTensor& grad_s,
                                          const OptTensor& grad_z, const at::Tensor& phi_q,
                                          const at::Tensor& phi_k, const at::Tensor& v,
                                          const at::Tensor& out, const at::Tensor& inv_den,
                                          const OptTensor& key_mask, bool is_causal,
                                          const OptTensor& s, const OptTensor& z) {
  const char* op = "linear_attention_backward";
  const LinearInputs given{phi_q, phi_k, v, key_mask, is_causal, s, z};
  check_linear_attention(op, given);
  if (!use_fast(op, true, ""))
    return linear_attention_backward_composite(grad, grad_s, grad_z, given);
  const LinearInputs in = laid_out(given);
  auto p = params_of<kernels::LinearBackward>(in);
  const c10::SymInt sizes[4] = {p.batch, p.heads, p.queries, p.value_dim};
  check_inputs(op, {{"grad", grad}, {"out", out}, {"v", v}});
  check_shape(op, {"grad", grad}, sizes, "[B, H, T, Dv]");
  check_shape(op, {"out", out}, sizes, "[B, H, T, Dv]");
  check_shape(op, {"inv_den", inv_den}, c10::SymIntArrayRef(sizes, 3), "[B, H, T]");
  const at::Tensor grad_rows = rows_contiguous(grad), out_rows = rows_contiguous(out),
                   inverse = inv_den.contiguous();
  const OptTensor gs = contiguous(grad_s), gz = contiguous(grad_z);
  p.out = const_view(out_rows);
  p.inv_den = inverse.const_data_ptr();
  p.grad_out = const_view(grad_rows);
  p.grad_s_out = const_data(gs);
  p.grad_z_out = const_data(gz);
  const at::TensorOptions options = in.v.options();
  const at::Tensor dq = fresh(in.phi_q.sizes(), options), dk = fresh(in.phi_k.sizes(), options),
                   dv = fresh(in.v.sizes(), options);
  at::Tensor ds = at::empty({0}, options), dz = at::empty({0}, options);
  p.grad_phi_q = mut_view(dq);
  p.grad_phi_k = mut_view(dk);
  p.grad_v = mut_view(dv);
  if (in.s) {
    ds = fresh(in.s->sizes(), in.s->options());
    dz = fresh(in.z->sizes(), in.z->options());
    p.grad_s_in = ds.mutable_data_ptr();
    p.grad_z_in = dz.mutable_data_ptr();
  }
  kernels::linear_attention_backward(p);
  return {dq, dk, dv, ds, dz};
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CPU, m) {
  m.impl("linear_attention", hedgerow::ops::linear_attention_cpu);
  m.impl("linear_attention_state", hedgerow::ops::linear_attention_state_cpu);
  m.impl("linear_attention_forward", hedgerow::ops::linear_attention_forward_cpu);
  m.impl("linear_attention_backward", hedgerow::ops::linear_attention_backward_cpu);
}
