#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "hedgerow/ops.h"
#include "ops/common/composite_gradient.h"
#include "ops/common/dispatch.h"
#include "ops/common/path.h"
#include "ops/entmax/entmax.h"
#include "ops/entmax_attention/entmax_attention.h"

namespace hedgerow::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// (out, stats, index, weight); the last three are saved for the backward and carry no gradient.
struct EntmaxAttention : torch::autograd::Function<EntmaxAttention> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const at::Tensor& alpha,
                               const OptTensor& attn_mask, bool is_causal,
                               std::optional<double> scale, double dropout_p,
                               std::optional<int64_t> dropout_seed) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, stats, index, weight] = entmax_attention_forward(
        q, k, v, alpha, attn_mask, is_causal, scale, dropout_p, dropout_seed);
    ctx->save_for_backward(
        {q, k, v, alpha, attn_mask.value_or(at::Tensor()), out, stats, index, weight});
    ctx->saved_data["is_causal"] = is_causal;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["dropout_p"] = dropout_p;
    ctx->saved_data["dropout_seed"] = dropout_seed;
    ctx->mark_non_differentiable({stats, index, weight});
    return {out, stats, index, weight};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& mask = saved[4];
    const bool alpha_grad = ctx->needs_input_grad(3);
    const bool mask_grad = mask.defined() && mask.is_floating_point() && ctx->needs_input_grad(4);
    const auto [grad_q, grad_k, grad_v, grad_alpha, grad_mask] = entmax_attention_backward(
        or_zeros(grads[0], saved[5]), saved[0], saved[1], saved[2], saved[3], saved[6], saved[7],
        saved[8], optional(mask), ctx->saved_data["is_causal"].toBool(),
        ctx->saved_data["scale"].toOptional<double>(), ctx->saved_data["dropout_p"].toDouble(),
        ctx->saved_data["dropout_seed"].toOptional<int64_t>(), alpha_grad, mask_grad);
    return {grad_q,
            grad_k,
            grad_v,
            alpha_grad ? grad_alpha : at::Tensor(),
            mask_grad ? grad_mask : at::Tensor(),
            {},
            {},
            {},
            {}};
  }
};

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> entmax_attention_forward_autograd(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& alpha,
    const OptTensor& attn_mask, bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<int64_t> dropout_seed) {
  check_entmax_attention("entmax_attention",
                         {q, k, v, alpha, attn_mask, is_causal, scale, dropout_p, dropout_seed});
  const variable_list out =
      EntmaxAttention::apply(q, k, v, alpha, attn_mask, is_causal, scale, dropout_p, dropout_seed);
  return {out[0], out[1], out[2], out[3]};
}

at::Tensor entmax_attention_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const at::Tensor& alpha, const OptTensor& attn_mask,
                                     bool is_causal, std::optional<double> scale, double dropout_p,
                                     std::optional<int64_t> dropout_seed) {
  if (!records_gradient({q, k, v, alpha}, {attn_mask})) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return entmax_attention(q, k, v, alpha, attn_mask, is_causal, scale, dropout_p, dropout_seed);
  }
  const EntmaxInputs in{q, k, v, alpha, attn_mask, is_causal, scale, dropout_p, dropout_seed};
  check_entmax_attention("entmax_attention", in);
  if (!use_fast("entmax_attention", on_kernel_device(q), "a device without a kernel")) {
    check_alpha_values("entmax_attention", alpha);
    return entmax_attention_composite(in);
  }
  return std::get<0>(entmax_attention_forward(q, k, v, alpha, attn_mask, is_causal, scale,
                                              dropout_p, dropout_seed));
}

EntmaxAttentionGrads entmax_attention_backward_autograd(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& alpha, const at::Tensor& stats, const at::Tensor& index,
    const at::Tensor& weight, const OptTensor& attn_mask, bool is_causal,
    std::optional<double> scale, double dropout_p, std::optional<int64_t> dropout_seed,
    bool alpha_grad, bool mask_grad) {
  // what is saved follows from the others, whose second derivatives the composite form gives in
  // full
  if (records_gradient({grad, q, k, v, alpha}, {attn_mask})) {
    const EntmaxInputs in{q, k, v, alpha, attn_mask, is_causal, scale, dropout_p, dropout_seed};
    check_entmax_attention_backward(grad, in, {stats, index, weight}, mask_grad);
    return entmax_attention_backward_composite(grad, in, alpha_grad, mask_grad);
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  return entmax_attention_backward(grad, q, k, v, alpha, stats, index, weight, attn_mask, is_causal,
                                   scale, dropout_p, dropout_seed, alpha_grad, mask_grad);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Autograd, m) {
  m.impl("entmax_attention", hedgerow::ops::entmax_attention_autograd);
  m.impl("entmax_attention_forward", hedgerow::ops::entmax_attention_forward_autograd);
  m.impl("entmax_attention_backward", hedgerow::ops::entmax_attention_backward_autograd);
}
