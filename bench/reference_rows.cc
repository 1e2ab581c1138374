#include "bench/reference_rows.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

namespace hedgerow::bench {

RowReference::RowReference(const BenchMethod& method, const AttentionBenchConfig& config,
                           const Tensors& inputs, const at::Tensor& grad_out, bool causal) {
  const int64_t T = inputs[0].size(2), S = inputs[2].size(2);
  const int64_t R = std::clamp<int64_t>(131072 / std::max<int64_t>(T, 1), 2, 16);
  rows_ = at::linspace(0, static_cast<double>(T - 1), std::min(R, T), at::kDouble).to(at::kLong);

  // The dimension of queries, -1 of an input that has none.
  const auto queries = [&](size_t i) -> int64_t {
    if (i == 0) return 2;
    return std::count(method.by_query.begin(), method.by_query.end(), i) > 0 ? 1 : -1;
  };
  Tensors x;
  for (size_t i = 0; i < inputs.size(); i++) {
    const at::Tensor sampled =
        queries(i) < 0 ? inputs[i] : inputs[i].index_select(queries(i), rows_);
    x.push_back(sampled.to(at::kDouble).detach().requires_grad_(true));
  }
  at::Tensor hidden = at::arange(S).unsqueeze(0) > rows_.unsqueeze(1) + (S - T);  // [R,S]
  if (!causal) hidden = at::zeros_like(hidden);
  double largest = 0;
  const at::Tensor weights = method.row_weights(config, x, hidden, &largest);
  const double visible = static_cast<double>(hidden.logical_not().sum().item<int64_t>() *
                                             weights.size(0) * weights.size(1));
  density_ = static_cast<double>(weights.detach().ne(0).sum().item<int64_t>()) / visible;
  const at::Tensor out = method.row_output != nullptr ? method.row_output(config, x, weights)
                                                      : at::matmul(weights, x[2]);  // [B,H,R,Dv]
  want_ = {out.detach()};
  Tensors grads =
      torch::autograd::grad({out}, x, {grad_out.index_select(2, rows_).to(at::kDouble)});
  for (size_t i = 0; i < grads.size(); i++) {
    if (queries(i) < 0) continue;
    grads[i] = at::zeros_like(inputs[i], at::kDouble).index_copy(queries(i), rows_, grads[i]);
  }
  want_.insert(want_.end(), grads.begin(), grads.end());
  tolerance_ = 3e-5 + 16 * std::ldexp(1.0, -24) * largest;
}

double RowReference::worst_error(const Tensors& got) const {
  double worst = 0;
  for (size_t i = 0; i < got.size(); i++) {
    const double scale = std::max(1.0, want_[i].abs().max().item<double>());
    const double error = (got[i].to(at::kDouble) - want_[i]).abs().max().item<double>() / scale;
    if (!(error <= worst)) worst = error;
    if (std::isnan(worst)) return worst;
  }
  return worst;
}

}  // namespace hedgerow::bench
