// The least-squares reconstruction of scores from those at given positions. A helper made of ATen
// operators (CompositeImplicitAutograd), differentiable in the covariance.
#include <ATen/ATen.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <torch/library.h>

#include <cmath>

#include "ops/common/dispatch.h"
#include "ops/partial_attention/partial_attention.h"

namespace hedgerow::ops {

at::Tensor lmmse_reconstruction(const at::Tensor& covariance, const at::Tensor& positions,
                                double ridge) {
  static const auto op = find_op<decltype(lmmse_reconstruction)>("hedgerow::lmmse_reconstruction");
  return op.call(covariance, positions, ridge);
}

namespace {

constexpr const char* kOp = "lmmse_reconstruction";

// A pivot of Cholesky's method is what a score adds to those before it: greedy_positions' rule.
void check_not_singular(const at::Tensor& selected, const at::Tensor& covariance, double ridge) {
  if (at::isTensorSubclassLike(selected) || selected.numel() == 0) return;
  const auto [factor, info] = at::linalg_cholesky_ex(selected.detach());
  const at::Tensor pivots = factor.diagonal(0, -2, -1).square().amin(-1),
                   largest = covariance.detach().diagonal(0, -2, -1).amax(-1);
  const at::Tensor good = info.eq(0).logical_and(pivots.gt(kNoVariance * largest));
  HEDGEROW_OP_CHECK(kOp, good.all().item<bool>(),
                    "the covariance of the selected positions must not be singular (a ridge makes "
                    "it regular); got ridge ",
                    ridge, " and covariance shape ", shape_text(covariance));
}

at::Tensor reconstruct(const at::Tensor& covariance, const at::Tensor& positions, double ridge) {
  check_covariance(kOp, covariance);
  HEDGEROW_OP_CHECK(kOp, positions.scalar_type() == at::kLong, "positions must be int64; got ",
                    dtype_text(positions.scalar_type()));
  HEDGEROW_OP_CHECK(kOp,
                    positions.dim() == covariance.dim() - 1 &&
                        (positions.dim() == 1 || positions.sym_size(0) == covariance.sym_size(0)),
                    "positions must be [P] for a covariance [n, n] and [H, P] for [H, n, n]; got "
                    "positions shape ",
                    shape_text(positions), " and covariance shape ", shape_text(covariance));
  HEDGEROW_OP_CHECK(kOp, std::isfinite(ridge) && ridge >= 0,
                    "ridge must be finite and at least 0; got ", ridge);
  const c10::SymInt n = covariance.sym_size(-1), count = positions.sym_size(-1);
  check_position_values(kOp, positions, n);
  at::Tensor c = covariance.to(at::kDouble), index = positions;
  if (c.dim() == 2) {
    c = c.unsqueeze(0);
    index = index.unsqueeze(0);
  }
  c = (c + c.transpose(1, 2)) / 2;
  const c10::SymInt heads = c.sym_size(0);
  const at::Tensor rows =  // C[P,:] [H,P,n]
      at::gather(c, 1, index.unsqueeze(2).expand_symint({heads, count, n}));
  at::Tensor selected =  // C[P,P] + ridge I
      at::gather(rows, 2, index.unsqueeze(1).expand_symint({heads, count, count}));
  if (ridge > 0)
    selected =
        selected +
        at::diag_embed(at::ones_symint({count}, selected.options().requires_grad(false))) * ridge;
  check_not_singular(selected, covariance, ridge);
  const at::Tensor r = std::get<0>(at::linalg_solve_ex(selected, rows)).transpose(1, 2);  // [H,n,P]
  return (covariance.dim() == 2 ? r.squeeze(0) : r).to(covariance.scalar_type());
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_FRAGMENT(hedgerow, m) {
  m.def("lmmse_reconstruction(Tensor covariance, Tensor positions, float ridge=0.0) -> Tensor",
        {at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(hedgerow, CompositeImplicitAutograd, m) {
  m.impl("lmmse_reconstruction", hedgerow::ops::reconstruct);
}
