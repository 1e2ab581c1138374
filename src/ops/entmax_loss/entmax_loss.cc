#include "ops/entmax_loss/entmax_loss.h"

#include <ATen/ATen.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <torch/library.h>

#include "hedgerow/ops.h"
#include "ops/common/dispatch.h"
#include "ops/entmax/entmax.h"

namespace hedgerow::ops {

void check_entmax_loss(const char* op, const at::Tensor& x, const at::Tensor& target,
                       const at::Tensor& alpha) {
  check_inputs(op, {{"x", x}});
  HEDGEROW_OP_CHECK(op, x.dim() >= 1, "x must have at least 1 dimension [.., C]; got a scalar");
  HEDGEROW_OP_CHECK(op, target.scalar_type() == at::kLong, "target must be int64; got ",
                    dtype_text(target.scalar_type()));
  check_shape(op, {"target", target}, x.sym_sizes().slice(0, x.dim() - 1), "[..] of x [.., C]");
  HEDGEROW_OP_CHECK(op, target.device() == x.device(), "target must be on x's device ",
                    x.device().str(), "; got ", target.device().str());
  check_alpha_of_rows(op, alpha, x, x.dim() - 1);
}

void check_entmax_loss_backward(const at::Tensor& grad, const at::Tensor& x,
                                const at::Tensor& target, const at::Tensor& alpha,
                                const at::Tensor& row_grad_x, const at::Tensor& row_grad_alpha) {
  const char* op = "entmax_loss_backward";
  check_entmax_loss(op, x, target, alpha);
  check_shape(op, {"grad", grad}, target.sym_sizes(), "that of target");
  check_shape(op, {"row_grad_x", row_grad_x}, x.sym_sizes(), "that of x");
  check_shape(op, {"row_grad_alpha", row_grad_alpha}, target.sym_sizes(), "that of target");
}

void check_entmax_loss_values(const char* op, const at::Tensor& x, const at::Tensor& target,
                              const at::Tensor& alpha, int64_t ignore_index) {
  check_alpha_values(op, alpha);
  if (at::isTensorSubclassLike(target)) return;
  const at::Tensor wrong =
      target.ne(ignore_index).logical_and(target.lt(0).logical_or(target.ge(x.size(-1))));
  if (!wrong.any().item<bool>()) return;
  HEDGEROW_OP_CHECK(op, false, "target must be in [0, ", x.size(-1), ") or ignore_index ",
                    ignore_index, "; got ", target.masked_select(wrong)[0].item<int64_t>());
}

EntmaxLossGrads entmax_loss_backward_of_rows(const at::Tensor& grad, const at::Tensor& x,
                                             const at::Tensor& alpha, const at::Tensor& row_grad_x,
                                             const at::Tensor& row_grad_alpha) {
  const at::Tensor g = grad.to(row_grad_x.scalar_type());
  const at::Tensor by_row = (g * row_grad_alpha).to(at::kDouble).unsqueeze(-1);
  const at::Tensor grad_alpha = alpha.dim() == 0 ? by_row.sum() : at::sum_to(by_row, alpha.sizes());
  return {(g.unsqueeze(-1) * row_grad_x).to(x.scalar_type()), grad_alpha.to(alpha.scalar_type())};
}

at::Tensor entmax_loss(const at::Tensor& x, const at::Tensor& target, const at::Tensor& alpha,
                       int64_t ignore_index) {
  static const auto op = find_op<decltype(entmax_loss)>("hedgerow::entmax_loss");
  return op.call(x, target, alpha, ignore_index);
}

EntmaxLossRows entmax_loss_forward(const at::Tensor& x, const at::Tensor& target,
                                   const at::Tensor& alpha, int64_t ignore_index) {
  static const auto op = find_op<decltype(entmax_loss_forward)>("hedgerow::entmax_loss_forward");
  return op.call(x, target, alpha, ignore_index);
}

EntmaxLossGrads entmax_loss_backward(const at::Tensor& grad, const at::Tensor& x,
                                     const at::Tensor& target, const at::Tensor& alpha,
                                     const at::Tensor& row_grad_x, const at::Tensor& row_grad_alpha,
                                     int64_t ignore_index) {
  static const auto op = find_op<decltype(entmax_loss_backward)>("hedgerow::entmax_loss_backward");
  return op.call(grad, x, target, alpha, row_grad_x, row_grad_alpha, ignore_index);
}

}  // namespace hedgerow::ops

TORCH_LIBRARY_FRAGMENT(hedgerow, m) {
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  m.def("entmax_loss(Tensor x, Tensor target, Tensor alpha, int ignore_index=-100) -> Tensor",
        tags);
  m.def(
      "entmax_loss_forward(Tensor x, Tensor target, Tensor alpha, int ignore_index) -> "
      "(Tensor loss, Tensor row_grad_x, Tensor row_grad_alpha)",
      tags);
  m.def(
      "entmax_loss_backward(Tensor grad, Tensor x, Tensor target, Tensor alpha, Tensor row_grad_x, "
      "Tensor row_grad_alpha, int ignore_index) -> (Tensor grad_x, Tensor grad_alpha)",
      tags);
}
