// The positions to compute, chosen one after the other. The choice is not differentiable.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/common/dispatch.h"
#include "ops/partial_attention/partial_attention.h"

namespace hedgerow::ops {

at::Tensor greedy_positions(const at::Tensor& covariance, int64_t count) {
  static const auto op = find_op<decltype(greedy_positions)>("hedgerow::greedy_positions");
  return op.call(covariance, count);
}

void check_covariance(const char* op, const at::Tensor& covariance) {
  check_inputs(op, {{"covariance", covariance}});
  const int64_t rank = covariance.dim();
  HEDGEROW_OP_CHECK(op,
                    (rank == 2 || rank == 3) && covariance.sym_size(-1) == covariance.sym_size(-2),
                    "covariance must be [n, n] or [H, n, n]; got shape ", shape_text(covariance));
}

namespace {

constexpr const char* kOp = "greedy_positions";
constexpr double kTie = 1 + 1e-13;  // gains this close differ by rounding: the lowest index wins

void check_greedy(const at::Tensor& covariance, int64_t count) {
  check_covariance(kOp, covariance);
  HEDGEROW_OP_CHECK(kOp, count >= 0 && c10::SymInt(count) <= covariance.sym_size(-1),
                    "count must be in [0, n] for n = ", covariance.sym_size(-1), "; got ", count);
}

// Writes `count` positions of the covariance e [n,n], which it overwrites by the residual.
void choose(double* e, int64_t n, int64_t count, int64_t* positions) {
  double largest = 0;
  for (int64_t j = 0; j < n; j++) largest = std::max(largest, e[j * n + j]);
  std::vector<double> row(n);
  for (int64_t step = 0; step < count; step++) {
    int64_t best = -1;
    double best_gain = 0;
    for (int64_t j = 0; j < n; j++) {
      const double variance = e[j * n + j];
      if (!(variance > kNoVariance * largest)) continue;
      double gain = 0;
      for (int64_t i = 0; i < n; i++) gain += e[j * n + i] * e[j * n + i];
      gain /= variance;
      if (gain > kTie * best_gain) best = j, best_gain = gain;
    }
    HEDGEROW_OP_CHECK(kOp, best >= 0, "count must be at most the covariance's rank; got count ",
                      count, " and rank ", step);
    positions[step] = best;
    // E - E_j E_j^T / E_jj; its row and column j are 0 but for rounding
    std::copy_n(e + best * n, n, row.begin());
    for (int64_t i = 0; i < n; i++) {
      const double share = row[i] / row[best];
      for (int64_t j = 0; j < n; j++)
        e[i * n + j] = i == best || j == best ? 0 : e[i * n + j] - share * row[j];
    }
  }
}

at::Tensor greedy_positions_any(const at::Tensor& covariance, int64_t count) {
  check_greedy(covariance, count);
  const at::Tensor residual =
      covariance.detach().to(at::kCPU, at::kDouble, false, true).contiguous();
  const int64_t n = residual.size(-1), heads = covariance.dim() == 3 ? residual.size(0) : 1;
  const double* end = residual.const_data_ptr<double>() + residual.numel();
  HEDGEROW_OP_CHECK(kOp,
                    std::all_of(residual.const_data_ptr<double>(), end,
                                [](double x) { return std::isfinite(x); }),
                    "covariance must be finite; got NaN or infinity");
  const at::Tensor positions = at::empty({heads, count}, at::kLong);
  for (int64_t h = 0; h < heads; h++)
    choose(residual.mutable_data_ptr<double>() + h * n * n, n, count,
           positions.mutable_data_ptr<int64_t>() + h * count);
  return (covariance.dim() == 3 ? positions : positions.squeeze(0)).to(covariance.device());
}

at::Tensor greedy_positions_meta(const at::Tensor& covariance, int64_t count) {
  check_greedy(covariance, count);
  const at::TensorOptions integers = covariance.options().dtype(at::kLong);
  return covariance.dim() == 3 ? at::empty_symint({covariance.sym_size(0), count}, integers)
                               : at::empty({count}, integers);
}

at::Tensor greedy_positions_autograd(const at::Tensor& covariance, int64_t count) {
  at::AutoDispatchBelowADInplaceOrView guard;
  return greedy_positions(covariance, count);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_FRAGMENT(hedgerow, m) {
  m.def("greedy_positions(Tensor covariance, int count) -> Tensor", {at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(hedgerow, CPU, m) {
  m.impl("greedy_positions", hedgerow::ops::greedy_positions_any);
}
TORCH_LIBRARY_IMPL(hedgerow, CompositeExplicitAutograd, m) {
  m.impl("greedy_positions", hedgerow::ops::greedy_positions_any);
}
TORCH_LIBRARY_IMPL(hedgerow, Meta, m) {
  m.impl("greedy_positions", hedgerow::ops::greedy_positions_meta);
}
TORCH_LIBRARY_IMPL(hedgerow, Autograd, m) {
  m.impl("greedy_positions", hedgerow::ops::greedy_positions_autograd);
}
