#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "hedgerow/ops.h"
#include "ops/common/composite_gradient.h"
#include "ops/common/dispatch.h"
#include "ops/common/path.h"
#include "ops/hedgehog_attention/hedgehog_attention.h"
#include "ops/hedgehog_features/hedgehog_features.h"

namespace hedgerow::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kNoKernel = "a device without a kernel";

at::Tensor or_undefined(const OptTensor& t) { return t.value_or(at::Tensor()); }

// (out, inv_den, row_exponent, s, z, m); only out, s and z carry gradients.
struct HedgehogAttention : torch::autograd::Function<HedgehogAttention> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const at::Tensor& wq, const at::Tensor& wk,
                               const OptTensor& bq, const OptTensor& bk, std::string variant,
                               const OptTensor& key_mask, bool is_causal, const OptTensor& s,
                               const OptTensor& z, const OptTensor& m, bool want_state) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, inv_den, exponent, s_out, z_out, m_out] = hedgehog_attention_forward(
        q, k, v, wq, wk, bq, bk, variant, key_mask, is_causal, s, z, m, want_state);
    ctx->save_for_backward({q, k, v, wq, wk, or_undefined(bq), or_undefined(bk),
                            or_undefined(key_mask), or_undefined(s), or_undefined(z),
                            or_undefined(m), out, inv_den, exponent, m_out, s_out, z_out});
    ctx->saved_data["variant"] = variant;
    ctx->saved_data["is_causal"] = is_causal;
    ctx->saved_data["want_state"] = want_state;
    ctx->set_materialize_grads(false);
    if (want_state) {
      ctx->mark_non_differentiable({inv_den, exponent, m_out});
    } else {
      ctx->mark_non_differentiable({inv_den, exponent, s_out, z_out, m_out});
    }
    return {out, inv_den, exponent, s_out, z_out, m_out};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list t = ctx->get_saved_variables();
    const OptTensor bq = optional(t[5]), bk = optional(t[6]), s = optional(t[8]),
                    z = optional(t[9]);
    const bool has_state = ctx->saved_data["want_state"].toBool();
    const auto of_state = [&](const at::Tensor& x) {
      return has_state ? optional(x) : OptTensor();
    };
    const auto [dq, dk, dv, dwq, dwk, dbq, dbk, ds, dz] = hedgehog_attention_backward(
        or_zeros(grads[0], t[11]), optional(grads[3]), optional(grads[4]), t[0], t[1], t[2], t[3],
        t[4], bq, bk, ctx->saved_data["variant"].toStringRef(), t[11], t[12], t[13],
        of_state(t[15]), of_state(t[16]), of_state(t[14]), optional(t[7]),
        ctx->saved_data["is_causal"].toBool(), s, z, optional(t[10]));
    const at::Tensor none;
    return {dq,
            dk,
            dv,
            dwq,
            dwk,
            bq ? dbq : none,
            bk ? dbk : none,
            none,
            none,
            none,
            s ? ds : none,
            z ? dz : none,
            none,
            none};
  }
};

HedgehogForwardResult hedgehog_attention_forward_autograd(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& wq,
    const at::Tensor& wk, const OptTensor& bq, const OptTensor& bk, std::string_view variant,
    const OptTensor& key_mask, bool is_causal, const OptTensor& s, const OptTensor& z,
    const OptTensor& m, bool want_state) {
  check_hedgehog_attention(
      "hedgehog_attention_forward",
      {q, k, v, wq, wk, bq, bk, std::string(variant), key_mask, is_causal, s, z, m});
  const variable_list r = HedgehogAttention::apply(q, k, v, wq, wk, bq, bk, std::string(variant),
                                                   key_mask, is_causal, s, z, m, want_state);
  return {r[0], r[1], r[2], r[3], r[4], r[5]};
}

at::Tensor hedgehog_attention_autograd(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const at::Tensor& wq,
                                       const at::Tensor& wk, const OptTensor& bq,
                                       const OptTensor& bk, std::string_view variant,
                                       const OptTensor& key_mask, bool is_causal) {
  const char* op = "hedgehog_attention";
  if (!records_gradient({q, k, v, wq, wk}, {bq, bk})) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return hedgehog_attention(q, k, v, wq, wk, bq, bk, variant, key_mask, is_causal);
  }
  const HedgehogInputs in{q,        k,         v,  wq, wk, bq, bk, std::string(variant),
                          key_mask, is_causal, {}, {}, {}};
  check_hedgehog_attention(op, in);
  if (!use_fast(op, on_kernel_device(q), kNoKernel))
    return std::get<0>(hedgehog_attention_composite(in, false));
  // Without a mask the backward starts from the sums over all keys; kept where they are smaller
  // than the features of the keys.
  const bool want_state =
      !is_causal && k.sym_size(2) >= feature_width(feature_map(in), wk.sym_size(2));
  return std::get<0>(hedgehog_attention_forward(q, k, v, wq, wk, bq, bk, variant, key_mask,
                                                is_causal, {}, {}, {}, want_state));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> hedgehog_attention_state_autograd(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& wq,
    const at::Tensor& wk, const OptTensor& bq, const OptTensor& bk, std::string_view variant,
    const OptTensor& key_mask, const OptTensor& s, const OptTensor& z, const OptTensor& m) {
  const char* op = "hedgehog_attention_state";
  if (!records_gradient({q, k, v, wq, wk}, {bq, bk, s, z})) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return hedgehog_attention_state(q, k, v, wq, wk, bq, bk, variant, key_mask, s, z, m);
  }
  const HedgehogInputs in{q, k, v, wq, wk, bq, bk, std::string(variant), key_mask, true, s, z, m};
  check_hedgehog_state(op, in);
  const auto r = use_fast(op, on_kernel_device(q), kNoKernel)
                     ? hedgehog_attention_forward(q, k, v, wq, wk, bq, bk, variant, key_mask, true,
                                                  s, z, m, true)
                     : hedgehog_attention_composite(in, true);
  return {std::get<0>(r), std::get<3>(r), std::get<4>(r), std::get<5>(r)};
}

at::Tensor hedgehog_step_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const at::Tensor& wq, const at::Tensor& wk, const OptTensor& bq,
                                  const OptTensor& bk, std::string_view variant, at::Tensor& s,
                                  at::Tensor& z, at::Tensor& m) {
  HEDGEROW_OP_CHECK("hedgehog_step_", !records_gradient({q, k, v, wq, wk, s, z, m}, {bq, bk}),
                    "works in place and has no gradient; use hedgehog_attention_state, or no_grad; "
                    "got an input that "
                    "requires a gradient while gradients are recorded");
  at::Tensor out;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    out = hedgehog_step_(q, k, v, wq, wk, bq, bk, variant, s, z, m);
  }
  for (const at::Tensor& t : {s, z, m})
    if (!t.is_inference()) t.unsafeGetTensorImpl()->bump_version();
  return out;
}

HedgehogGrads hedgehog_attention_backward_autograd(
    const at::Tensor& grad, const OptTensor& grad_s, const OptTensor& grad_z, const at::Tensor& q,
    const at::Tensor& k, const at::Tensor& v, const at::Tensor& wq, const at::Tensor& wk,
    const OptTensor& bq, const OptTensor& bk, std::string_view variant, const at::Tensor& out,
    const at::Tensor& inv_den, const at::Tensor& row_exponent, const OptTensor& s_out,
    const OptTensor& z_out, const OptTensor& m_out, const OptTensor& key_mask, bool is_causal,
    const OptTensor& s, const OptTensor& z, const OptTensor& m) {
  // out, inv_den and row_exponent follow from the others, whose second derivatives the composite
  // form gives in full.
  if (records_gradient({grad, q, k, v, wq, wk}, {grad_s, grad_z, bq, bk, s, z}))
    return hedgehog_attention_backward_composite(
        grad, grad_s, grad_z,
        {q, k, v, wq, wk, bq, bk, std::string(variant), key_mask, is_causal, s, z, m}, m_out);
  at::AutoDispatchBelowADInplaceOrView guard;
  return hedgehog_attention_backward(grad, grad_s, grad_z, q, k, v, wq, wk, bq, bk, variant, out,
                                     inv_den, row_exponent, s_out, z_out, m_out, key_mask,
                                     is_causal, s, z, m);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Autograd, m) {
  m.impl("hedgehog_attention", hedgerow::ops::hedgehog_attention_autograd);
  m.impl("hedgehog_attention_state", hedgerow::ops::hedgehog_attention_state_autograd);
  m.impl("hedgehog_step_", hedgerow::ops::hedgehog_step_autograd);
  m.impl("hedgehog_attention_forward", hedgerow::ops::hedgehog_attention_forward_autograd);
  m.impl("hedgehog_attention_backward", hedgerow::ops::hedgehog_attention_backward_autograd);
}
