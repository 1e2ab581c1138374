#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "hedgerow/ops.h"
#include "ops/common/composite_gradient.h"
#include "ops/entmax_loss/entmax_loss.h"

namespace hedgerow::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// (loss, the rows' gradients): the latter are saved and carry no gradient.
struct EntmaxLoss : torch::autograd::Function<EntmaxLoss> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& target,
                               const at::Tensor& alpha, int64_t ignore_index) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [loss, row_grad_x, row_grad_alpha] =
        entmax_loss_forward(x, target, alpha, ignore_index);
    ctx->save_for_backward({x, target, alpha, loss, row_grad_x, row_grad_alpha});
    ctx->saved_data["ignore_index"] = ignore_index;
    ctx->mark_non_differentiable({row_grad_x, row_grad_alpha});
    return {loss, row_grad_x, row_grad_alpha};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto [grad_x, grad_alpha] =
        entmax_loss_backward(or_zeros(grads[0], saved[3]), saved[0], saved[1], saved[2], saved[4],
                             saved[5], ctx->saved_data["ignore_index"].toInt());
    return {grad_x, {}, ctx->needs_input_grad(2) ? grad_alpha : at::Tensor(), {}};
  }
};

EntmaxLossRows entmax_loss_forward_autograd(const at::Tensor& x, const at::Tensor& target,
                                            const at::Tensor& alpha, int64_t ignore_index) {
  check_entmax_loss("entmax_loss", x, target, alpha);
  const variable_list out = EntmaxLoss::apply(x, target, alpha, ignore_index);
  return {out[0], out[1], out[2]};
}

at::Tensor entmax_loss_autograd(const at::Tensor& x, const at::Tensor& target,
                                const at::Tensor& alpha, int64_t ignore_index) {
  if (!records_gradient({x, alpha})) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return entmax_loss(x, target, alpha, ignore_index);
  }
  return std::get<0>(entmax_loss_forward(x, target, alpha, ignore_index));
}

EntmaxLossGrads entmax_loss_backward_autograd(const at::Tensor& grad, const at::Tensor& x,
                                              const at::Tensor& target, const at::Tensor& alpha,
                                              const at::Tensor& row_grad_x,
                                              const at::Tensor& row_grad_alpha,
                                              int64_t ignore_index) {
  // the rows' gradients follow from x and alpha, whose second derivatives the composite form gives
  if (records_gradient({grad, x, alpha})) {
    check_entmax_loss_backward(grad, x, target, alpha, row_grad_x, row_grad_alpha);
    return entmax_loss_backward_composite(grad, x, target, alpha, ignore_index);
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  return entmax_loss_backward(grad, x, target, alpha, row_grad_x, row_grad_alpha, ignore_index);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Autograd, m) {
  m.impl("entmax_loss", hedgerow::ops::entmax_loss_autograd);
  m.impl("entmax_loss_forward", hedgerow::ops::entmax_loss_forward_autograd);
  m.impl("entmax_loss_backward", hedgerow::ops::entmax_loss_backward_autograd);
}
