#include <ATen/ATen.h>
#include <torch/library.h>

#include "hedgerow/kernels/entmax.h"
#include "ops/common/dispatch.h"
#include "ops/common/path.h"
#include "ops/entmax/row_views.h"
#include "ops/entmax_loss/entmax_loss.h"

namespace hedgerow::ops {
namespace {

// The kernel's gradients are of x's dtype: bfloat16 rows are widened first, so that what is saved
// has the accumulation dtype.
EntmaxLossRows run_loss(const char* op, const at::Tensor& x_in, const at::Tensor& target,
                        const at::Tensor& alpha, int64_t ignore_index, bool want_grads) {
  check_entmax_loss(op, x_in, target, alpha);
  check_entmax_loss_values(op, x_in, target, alpha, ignore_index);
  if (!use_fast(op, on_kernel_device(x_in), "a device without a kernel"))
    return entmax_loss_composite(x_in, target, alpha, ignore_index);
  const at::Tensor x = x_in.to(accumulate_dtype(x_in.scalar_type()));
  const int64_t dim = x.dim() - 1;
  const AlphaRows rows(x, alpha, dim);
  const at::Tensor classes = target.contiguous();
  const at::TensorOptions doubles = x.options().dtype(at::kDouble);
  const at::Tensor loss = fresh(target.sizes(), doubles);
  at::Tensor dx, dalpha;
  kernels::EntmaxLoss out;
  out.target = classes.const_data_ptr<int64_t>();
  out.ignore_index = ignore_index;
  out.loss = loss.mutable_data_ptr<double>();
  if (want_grads) {
    dx = fresh(x.sizes(), x.options());
    dalpha = fresh(target.sizes(), doubles);
    out.dx = mut_rows(dx, dim);
    out.dalpha = dalpha.mutable_data_ptr<double>();
  }
  kernels::entmax_loss(rows.rows, const_rows(x, dim), {}, out);
  return {loss.to(x.scalar_type()), dx, want_grads ? dalpha.to(x.scalar_type()) : dalpha};
}

at::Tensor entmax_loss_cpu(const at::Tensor& x, const at::Tensor& target, const at::Tensor& alpha,
                           int64_t ignore_index) {
  return std::get<0>(run_loss("entmax_loss", x, target, alpha, ignore_index, false));
}

EntmaxLossRows entmax_loss_forward_cpu(const at::Tensor& x, const at::Tensor& target,
                                       const at::Tensor& alpha, int64_t ignore_index) {
  return run_loss("entmax_loss", x, target, alpha, ignore_index, true);
}

EntmaxLossGrads entmax_loss_backward_cpu(const at::Tensor& grad, const at::Tensor& x,
                                         const at::Tensor& target, const at::Tensor& alpha,
                                         const at::Tensor& row_grad_x,
                                         const at::Tensor& row_grad_alpha, int64_t ignore_index) {
  check_entmax_loss_backward(grad, x, target, alpha, row_grad_x, row_grad_alpha);
  return entmax_loss_backward_of_rows(grad, x, alpha, row_grad_x, row_grad_alpha);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CPU, m) {
  m.impl("entmax_loss", hedgerow::ops::entmax_loss_cpu);
  m.impl("entmax_loss_forward", hedgerow::ops::entmax_loss_forward_cpu);
  m.impl("entmax_loss_backward", hedgerow::ops::entmax_loss_backward_cpu);
}
