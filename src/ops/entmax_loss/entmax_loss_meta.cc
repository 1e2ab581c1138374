// Shapes and dtypes only; sizes may be symbolic.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/common/dispatch.h"
#include "ops/entmax_loss/entmax_loss.h"

namespace hedgerow::ops {
namespace {

at::Tensor entmax_loss_meta(const at::Tensor& x, const at::Tensor& target, const at::Tensor& alpha,
                            int64_t ignore_index) {
  check_entmax_loss("entmax_loss", x, target, alpha);
  return at::empty_symint(target.sym_sizes(), x.options().dtype(accumulate_dtype(x.scalar_type())));
}

EntmaxLossRows entmax_loss_forward_meta(const at::Tensor& x, const at::Tensor& target,
                                        const at::Tensor& alpha, int64_t ignore_index) {
  const at::Tensor loss = entmax_loss_meta(x, target, alpha, ignore_index);
  return {loss, at::empty_symint(x.sym_sizes(), loss.options()),
          at::empty_symint(target.sym_sizes(), loss.options())};
}

EntmaxLossGrads entmax_loss_backward_meta(const at::Tensor& grad, const at::Tensor& x,
                                          const at::Tensor& target, const at::Tensor& alpha,
                                          const at::Tensor& row_grad_x,
                                          const at::Tensor& row_grad_alpha, int64_t ignore_index) {
  check_entmax_loss_backward(grad, x, target, alpha, row_grad_x, row_grad_alpha);
  return {at::empty_symint(x.sym_sizes(), x.options()),
          at::empty_symint(alpha.sym_sizes(), alpha.options())};
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Meta, m) {
  m.impl("entmax_loss", hedgerow::ops::entmax_loss_meta);
  m.impl("entmax_loss_forward", hedgerow::ops::entmax_loss_forward_meta);
  m.impl("entmax_loss_backward", hedgerow::ops::entmax_loss_backward_meta);
}
