#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "hedgerow/ops.h"
#include "ops/common/composite_gradient.h"
#include "ops/common/dispatch.h"
#include "ops/common/path.h"
#include "ops/linear_attention/linear_attention.h"

namespace hedgerow::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// (out, inv_den, s, z); inv_den is saved for the backward and carries no gradient.
struct LinearAttention : torch::autograd::Function<LinearAttention> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& phi_q,
                               const at::Tensor& phi_k, const at::Tensor& v,
                               const OptTensor& key_mask, bool is_causal, const OptTensor& s,
                               const OptTensor& z, bool want_state) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, inv_den, s_out, z_out] =
        linear_attention_forward(phi_q, phi_k, v, key_mask, is_causal, s, z, want_state);
    ctx->save_for_backward({phi_q, phi_k, v, key_mask.value_or(at::Tensor()),
                            s.value_or(at::Tensor()), z.value_or(at::Tensor()), out, inv_den});
    ctx->saved_data["is_causal"] = is_causal;
    ctx->set_materialize_grads(false);
    if (want_state) {
      ctx->mark_non_differentiable({inv_den});
    } else {
      ctx->mark_non_differentiable({inv_den, s_out, z_out});
    }
    return {out, inv_den, s_out, z_out};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &phi_q = saved[0], &phi_k = saved[1], &v = saved[2], &out = saved[6],
                     &inv_den = saved[7];
    const OptTensor s = optional(saved[4]);
    const auto [dq, dk, dv, ds, dz] = linear_attention_backward(
        or_zeros(grads[0], out), optional(grads[2]), optional(grads[3]), phi_q, phi_k, v, out,
        inv_den, optional(saved[3]), ctx->saved_data["is_causal"].toBool(), s, optional(saved[5]));
    return {dq, dk, dv, {}, {}, s ? ds : at::Tensor(), s ? dz : at::Tensor(), {}};
  }
};

LinearForwardResult linear_attention_forward_autograd(const at::Tensor& phi_q,
                                                      const at::Tensor& phi_k, const at::Tensor& v,
                                                      const OptTensor& key_mask, bool is_causal,
                                                      const OptTensor& s, const OptTensor& z,
                                                      bool want_state) {
  check_linear_attention("linear_attention_forward", {phi_q, phi_k, v, key_mask, is_causal, s, z});
  const variable_list r =
      LinearAttention::apply(phi_q, phi_k, v, key_mask, is_causal, s, z, want_state);
  return {r[0], r[1], r[2], r[3]};
}

at::Tensor linear_attention_autograd(const at::Tensor& phi_q, const at::Tensor& phi_k,
                                     const at::Tensor& v, const OptTensor& key_mask,
                                     bool is_causal) {
  const char* op = "linear_attention";
  if (!records_gradient({phi_q, phi_k, v})) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return linear_attention(phi_q, phi_k, v, key_mask, is_causal);
  }
  const LinearInputs in{phi_q, phi_k, v, key_mask, is_causal, {}, {}};
  check_linear_attention(op, in);
  if (!use_fast(op, on_kernel_device(v), "a device without a kernel"))
    return std::get<0>(linear_attention_composite(in, false));
  return std::get<0>(linear_attention_forward(phi_q, phi_k, v, key_mask, is_causal, {}, {}, false));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_attention_state_autograd(
    const at::Tensor& phi_q, const at::Tensor& phi_k, const at::Tensor& v,
    const OptTensor& key_mask, const OptTensor& s, const OptTensor& z) {
  const char* op = "linear_attention_state";
  if (!records_gradient({phi_q, phi_k, v}, {s, z})) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return linear_attention_state(phi_q, phi_k, v, key_mask, s, z);
  }
  const LinearInputs in{phi_q, phi_k, v, key_mask, true, s, z};
  check_linear_attention(op, in);
  check_own_keys(op, {"phi_q", phi_q}, {"phi_k", phi_k});
  const auto [out, inv_den, s_out, z_out] =
      use_fast(op, on_kernel_device(v), "a device without a kernel")
          ? linear_attention_forward(phi_q, phi_k, v, key_mask, true, s, z, true)
          : linear_attention_composite(in, true);
  return {out, s_out, z_out};
}

LinearGrads linear_attention_backward_autograd(const at::Tensor& grad, const OptTensor& grad_s,
                                               const OptTensor& grad_z, const at::Tensor& phi_q,
                                               const at::Tensor& phi_k, const at::Tensor& v,
                                               const at::Tensor& out, const at::Tensor& inv_den,
                                               const OptTensor& key_mask, bool is_causal,
                                               const OptTensor& s, const OptTensor& z) {
  // out and inv_den follow from the others, whose second derivatives the composite form gives in
  // full.
  if (records_gradient({grad, phi_q, phi_k, v}, {grad_s, grad_z, s, z}))
    return linear_attention_backward_composite(grad, grad_s, grad_z,
                                               {phi_q, phi_k, v, key_mask, is_causal, s, z});
  at::AutoDispatchBelowADInplaceOrView guard;
  return linear_attention_backward(grad, grad_s, grad_z, phi_q, phi_k, v, out, inv_den, key_mask,
                                   is_causal, s, z);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Autograd, m) {
  m.impl("linear_attention", hedgerow::ops::linear_attention_autograd);
  m.impl("linear_attention_state", hedgerow::ops::linear_attention_state_autograd);
  m.impl("linear_attention_forward", hedgerow::ops::linear_attention_forward_autograd);
  m.impl("linear_attention_backward", hedgerow::ops::linear_attention_backward_autograd);
}
