// The definition, in ATen operators, in float64:
//   loss = sum_i (p_i - [i = target]) x_i + H(p),  H(p) = -sum_i p_i w_i / alpha,
//   w = (p^e - 1) / e, e = alpha - 1; w = log p at e = 0 (Shannon's entropy: cross-entropy)
//   dloss/dx = p - [target],  dloss/dalpha = dH/dalpha at constant p
#include <ATen/ATen.h>
#include <torch/library.h>

#include <limits>

#include "hedgerow/ops.h"
#include "ops/common/dispatch.h"
#include "ops/entmax_loss/entmax_loss.h"

namespace hedgerow::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Terms {
  at::Tensor e;        // alpha - 1, [..,1] or 0-dim
  at::Tensor p;        // [..,C], with gradients for x and alpha
  at::Tensor log_p;    // 0 where p is
  at::Tensor onehot;   // 1 at the target, unless that is excluded or ignored
  at::Tensor counted;  // boolean [..,1]: neither ignored nor without entries
  at::Tensor place;    // the target, 0 where ignored: [..,1]
};

// x [..,C], C > 0, in float64.
Terms terms(const at::Tensor& x, const at::Tensor& target, const at::Tensor& alpha,
            int64_t ignore_index) {
  Terms t;
  t.e = alpha.to(at::kDouble) - 1;
  const at::Tensor visible = x.detach() > -kInf;
  t.p = entmax(x, alpha, -1);
  t.log_p = t.p.masked_fill(t.p.detach() == 0, 1).log();
  const at::Tensor known = target.ne(ignore_index).unsqueeze(-1);
  t.place = target.unsqueeze(-1).masked_fill(known.logical_not(), 0);
  t.counted = known.logical_and(visible.any(-1, true));
  t.onehot = at::zeros_like(t.p.detach()).scatter(-1, t.place, 1.0) * visible;
  return t;
}

// sum_k first(k) x^k by Horner's rule for |x| <= 1/2; ratio(k) = c_k / c_{k-1}.
template <typename Ratio>
at::Tensor series(const at::Tensor& x, double first, Ratio ratio) {
  at::Tensor sum = at::ones_like(x);
  for (int k = 16; k >= 1; k--) sum = 1 + sum * x * ratio(static_cast<double>(k));
  return sum * first;
}

// f(x) where |x| > 1/2, its series elsewhere; both branches are finite and differentiable.
template <typename F, typename Ratio>
at::Tensor with_series(const at::Tensor& x, F f, double first, Ratio ratio) {
  const at::Tensor near = x.detach().abs() <= 0.5;
  return at::where(near, series(x.masked_fill(near.logical_not(), 0), first, ratio),
                   f(x.masked_fill(near, 1)));
}

// w / log p = (e^x - 1) / x at x = e log p.
at::Tensor first_order(const at::Tensor& x) {
  return with_series(
      x, [](const at::Tensor& y) { return y.expm1() / y; }, 1.0,
      [](double k) { return 1 / (k + 1); });
}

// dw/dalpha / log^2 p = (x e^x - e^x + 1) / x^2.
at::Tensor second_order(const at::Tensor& x) {
  return with_series(
      x, [](const at::Tensor& y) { return (y * y.exp() - y.expm1()) / y.square(); }, 0.5,
      [](double k) { return (k + 1) / (k * (k + 2)); });
}

// dH/dalpha at constant p, [..,1].
at::Tensor entropy_by_alpha(const Terms& t) {
  const at::Tensor x = t.e * t.log_p, alpha = t.e + 1;
  const at::Tensor w = t.log_p * first_order(x), dw = t.log_p.square() * second_order(x);
  return ((t.p * w).sum(-1, true) / alpha - (t.p * dw).sum(-1, true)) / alpha;
}

}  // namespace

EntmaxLossRows entmax_loss_composite(const at::Tensor& x_in, const at::Tensor& target,
                                     const at::Tensor& alpha, int64_t ignore_index) {
  const at::ScalarType dtype = accumulate_dtype(x_in.scalar_type());
  const at::TensorOptions options = x_in.options().dtype(dtype).requires_grad(false);
  if (x_in.numel() == 0)
    return {at::zeros(target.sizes(), options), at::zeros(x_in.sizes(), options),
            at::zeros(target.sizes(), options)};
  const at::Tensor x = x_in.detach().to(at::kDouble);
  const Terms t = terms(x, target, alpha.detach(), ignore_index);
  const at::Tensor chosen = x.gather(-1, t.place);  // [..,1]
  const at::Tensor away = (x - chosen).masked_fill(t.p == 0, 0);
  const at::Tensor entropy =
      -(t.p * t.log_p * first_order(t.e * t.log_p)).sum(-1, true) / (t.e + 1);
  const at::Tensor loss = ((t.p * away).sum(-1, true) + entropy).clamp_min(0);
  const auto row = [&](const at::Tensor& value) {
    return value.masked_fill(t.counted.logical_not(), 0).to(dtype);
  };
  return {row(loss).squeeze(-1), row(t.p - t.onehot), row(entropy_by_alpha(t)).squeeze(-1)};
}

EntmaxLossGrads entmax_loss_backward_composite(const at::Tensor& grad, const at::Tensor& x,
                                               const at::Tensor& target, const at::Tensor& alpha,
                                               int64_t ignore_index) {
  if (x.sym_numel() == 0) return {at::zeros_like(x), at::zeros_like(alpha)};
  const Terms t = terms(x.to(at::kDouble), target, alpha, ignore_index);
  const at::Tensor g = grad.to(at::kDouble).unsqueeze(-1).masked_fill(t.counted.logical_not(), 0);
  const at::Tensor by_row = g * entropy_by_alpha(t);  // [..,1]
  const at::Tensor grad_alpha = alpha.dim() == 0 ? by_row.sum() : at::sum_to(by_row, alpha.sizes());
  return {(g * (t.p - t.onehot)).to(x.scalar_type()), grad_alpha.to(alpha.scalar_type())};
}

namespace {

EntmaxLossRows entmax_loss_forward_any(const at::Tensor& x, const at::Tensor& target,
                                       const at::Tensor& alpha, int64_t ignore_index) {
  check_entmax_loss("entmax_loss", x, target, alpha);
  check_entmax_loss_values("entmax_loss", x, target, alpha, ignore_index);
  return entmax_loss_composite(x, target, alpha, ignore_index);
}

at::Tensor entmax_loss_any(const at::Tensor& x, const at::Tensor& target, const at::Tensor& alpha,
                           int64_t ignore_index) {
  return std::get<0>(entmax_loss_forward_any(x, target, alpha, ignore_index));
}

EntmaxLossGrads entmax_loss_backward_any(const at::Tensor& grad, const at::Tensor& x,
                                         const at::Tensor& target, const at::Tensor& alpha,
                                         const at::Tensor& row_grad_x,
                                         const at::Tensor& row_grad_alpha, int64_t ignore_index) {
  check_entmax_loss_backward(grad, x, target, alpha, row_grad_x, row_grad_alpha);
  return entmax_loss_backward_of_rows(grad, x, alpha, row_grad_x, row_grad_alpha);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CompositeExplicitAutograd, m) {
  m.impl("entmax_loss", hedgerow::ops::entmax_loss_any);
  m.impl("entmax_loss_forward", hedgerow::ops::entmax_loss_forward_any);
  m.impl("entmax_loss_backward", hedgerow::ops::entmax_loss_backward_any);
}
