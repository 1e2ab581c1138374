#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "hedgerow/ops.h"
#include "ops/common/composite_gradient.h"
#include "ops/common/dispatch.h"
#include "ops/common/path.h"
#include "ops/softmax_attention/softmax_attention.h"

namespace hedgerow::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// (out, lse); lse is saved for the backward and carries no gradient.
struct SoftmaxAttention : torch::autograd::Function<SoftmaxAttention> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const OptTensor& attn_mask, bool is_causal,
                               std::optional<double> scale, double dropout_p,
                               std::optional<int64_t> dropout_seed) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, lse] =
        softmax_attention_forward(q, k, v, attn_mask, is_causal, scale, dropout_p, dropout_seed);
    ctx->save_for_backward({q, k, v, attn_mask.value_or(at::Tensor()), out, lse});
    ctx->saved_data["is_causal"] = is_causal;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["dropout_p"] = dropout_p;
    ctx->saved_data["dropout_seed"] = dropout_seed;
    ctx->mark_non_differentiable({lse});
    return {out, lse};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &mask = saved[3];
    const bool mask_grad = mask.defined() && mask.is_floating_point() && ctx->needs_input_grad(3);
    const auto [grad_q, grad_k, grad_v, grad_mask] = softmax_attention_backward(
        or_zeros(grads[0], saved[4]), q, k, v, saved[4], saved[5], optional(mask),
        ctx->saved_data["is_causal"].toBool(), ctx->saved_data["scale"].toOptional<double>(),
        ctx->saved_data["dropout_p"].toDouble(),
        ctx->saved_data["dropout_seed"].toOptional<int64_t>(), mask_grad);
    return {grad_q, grad_k, grad_v, mask_grad ? grad_mask : at::Tensor(), {}, {}, {}, {}};
  }
};

std::tuple<at::Tensor, at::Tensor> softmax_attention_forward_autograd(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const OptTensor& attn_mask,
    bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<int64_t> dropout_seed) {
  check_softmax_attention("softmax_attention", q, k, v, attn_mask, scale, dropout_p, dropout_seed);
  const variable_list out =
      SoftmaxAttention::apply(q, k, v, attn_mask, is_causal, scale, dropout_p, dropout_seed);
  return {out[0], out[1]};
}

at::Tensor softmax_attention_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const OptTensor& attn_mask, bool is_causal,
                                      std::optional<double> scale, double dropout_p,
                                      std::optional<int64_t> dropout_seed) {
  if (!records_gradient({q, k, v}, {attn_mask})) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return softmax_attention(q, k, v, attn_mask, is_causal, scale, dropout_p, dropout_seed);
  }
  check_softmax_attention("softmax_attention", q, k, v, attn_mask, scale, dropout_p, dropout_seed);
  if (!use_fast("softmax_attention", on_kernel_device(q), "a device without a kernel"))
    return std::get<0>(
        softmax_attention_composite(q, k, v, attn_mask, is_causal, scale, dropout_p, dropout_seed));
  return std::get<0>(
      softmax_attention_forward(q, k, v, attn_mask, is_causal, scale, dropout_p, dropout_seed));
}

SoftmaxGrads softmax_attention_backward_autograd(const at::Tensor& grad, const at::Tensor& q,
                                                 const at::Tensor& k, const at::Tensor& v,
                                                 const at::Tensor& out, const at::Tensor& lse,
                                                 const OptTensor& attn_mask, bool is_causal,
                                                 std::optional<double> scale, double dropout_p,
                                                 std::optional<int64_t> dropout_seed,
                                                 bool mask_grad) {
  // out and lse follow from the others, whose second derivatives the composite form gives in full.
  if (records_gradient({grad, q, k, v}, {attn_mask}))
    return softmax_attention_backward_composite(grad, q, k, v, attn_mask, is_causal, scale,
                                                dropout_p, dropout_seed, mask_grad);
  at::AutoDispatchBelowADInplaceOrView guard;
  return softmax_attention_backward(grad, q, k, v, out, lse, attn_mask, is_causal, scale, dropout_p,
                                    dropout_seed, mask_grad);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Autograd, m) {
  m.impl("softmax_attention", hedgerow::ops::softmax_attention_autograd);
  m.impl("softmax_attention_forward", hedgerow::ops::softmax_attention_forward_autograd);
  m.impl("softmax_attention_backward", hedgerow::ops::softmax_attention_backward_autograd);
}
