#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "hedgerow/ops.h"
#include "ops/common/composite_gradient.h"
#include "ops/common/dispatch.h"
#include "ops/entmax/entmax.h"

namespace hedgerow::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// p; saved as it is returned, so that second derivatives reach x and alpha through it.
struct Entmax : torch::autograd::Function<Entmax> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& alpha,
                            int64_t dim, const OptTensor& mask) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const at::Tensor p = entmax(x, alpha, dim, mask);
    ctx->save_for_backward({p, alpha});
    ctx->saved_data["dim"] = dim;
    return p;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto [grad_x, grad_alpha] =
        entmax_backward(or_zeros(grads[0], saved[0]), saved[0], saved[1],
                        ctx->saved_data["dim"].toInt(), ctx->needs_input_grad(1));
    return {grad_x, ctx->needs_input_grad(1) ? grad_alpha : at::Tensor(), {}, {}};
  }
};

at::Tensor entmax_autograd(const at::Tensor& x, const at::Tensor& alpha, int64_t dim,
                           const OptTensor& mask) {
  if (!records_gradient({x, alpha})) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return entmax(x, alpha, dim, mask);
  }
  const int64_t d = check_entmax("entmax", x, alpha, dim, mask);
  return Entmax::apply(x, alpha, d, mask);
}

EntmaxGrads entmax_backward_autograd(const at::Tensor& grad, const at::Tensor& p,
                                     const at::Tensor& alpha, int64_t dim, bool alpha_grad) {
  if (!records_gradient({grad, p, alpha})) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return entmax_backward(grad, p, alpha, dim, alpha_grad);
  }
  const int64_t d = check_entmax_backward(grad, p, alpha, dim);
  return entmax_backward_composite(grad, p, alpha, d, alpha_grad);
}

// (values, indices, complete): values are entmax of compact rows, so their gradient is too.
struct EntmaxTopK : torch::autograd::Function<EntmaxTopK> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& alpha,
                               int64_t k, int64_t dim, const OptTensor& mask) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [values, indices, complete] = entmax_topk(x, alpha, k, dim, mask);
    ctx->save_for_backward({values, indices, alpha});
    ctx->saved_data["dim"] = dim;
    ctx->saved_data["length"] = x.sym_size(dim);
    ctx->mark_non_differentiable({indices, complete});
    return {values, indices, complete};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &values = saved[0], &indices = saved[1];
    const int64_t dim = ctx->saved_data["dim"].toInt();
    const auto [grad_values, grad_alpha] = entmax_backward(or_zeros(grads[0], values), values,
                                                           saved[2], dim, ctx->needs_input_grad(1));
    std::vector<c10::SymInt> sizes = values.sym_sizes().vec();
    sizes[dim] = ctx->saved_data["length"].toSymInt();
    at::Tensor grad_x = at::zeros_symint(sizes, values.options());
    // unused places hold gradients of 0, wherever they are added
    if (sizes[dim] != 0) grad_x = grad_x.scatter_add(dim, indices.clamp_min(0), grad_values);
    return {grad_x, ctx->needs_input_grad(1) ? grad_alpha : at::Tensor(), {}, {}, {}};
  }
};

TopK entmax_topk_autograd(const at::Tensor& x, const at::Tensor& alpha, int64_t k, int64_t dim,
                          const OptTensor& mask) {
  if (!records_gradient({x, alpha})) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return entmax_topk(x, alpha, k, dim, mask);
  }
  const int64_t d = check_entmax_topk(x, alpha, k, dim, mask);
  const variable_list out = EntmaxTopK::apply(x, alpha, k, d, mask);
  return {out[0], out[1], out[2]};
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Autograd, m) {
  m.impl("entmax", hedgerow::ops::entmax_autograd);
  m.impl("entmax_backward", hedgerow::ops::entmax_backward_autograd);
  m.impl("entmax_topk", hedgerow::ops::entmax_topk_autograd);
}
