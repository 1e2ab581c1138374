#include "bench/reference_rows.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hedgerow/error.h"

namespace hedgerow::bench {
namespace {

// log phi(q).phi(k) of the exp map for one head: yq [B,R,D], yk [B,S,D] -> [B,R,S].
at::Tensor exp_map_logits(const at::Tensor& yq, const at::Tensor& yk) {
  const at::Tensor y = yq.unsqueeze(2) + yk.unsqueeze(1);  // [B,R,S,D]
  return at::logsumexp(at::cat({y, -y}, -1), {-1});
}

}  // namespace

RowReference::RowReference(const RowProblem& problem) : problem_(problem) {
  HEDGEROW_CHECK(problem.map.empty() || problem.map == "exp",
                 "bench: a reference exists for the exp map; got ", problem.map);
  const int64_t T = problem.q.size(2), S = problem.k.size(2), H = problem.q.size(1),
                D = problem.q.size(3);
  const int64_t R = std::clamp<int64_t>(131072 / std::max<int64_t>(T, 1), 2, 16);
  rows_ = at::linspace(0, static_cast<double>(T - 1), std::min(R, T), at::kDouble).to(at::kLong);

  std::vector<at::Tensor> x;
  for (const at::Tensor& t :
       {problem.q.index_select(2, rows_), problem.k, problem.v, problem.wq, problem.wk})
    x.push_back(t.to(at::kDouble).detach().requires_grad_(x.size() < num_inputs()));
  const at::Tensor hidden = at::arange(S).unsqueeze(0) > rows_.unsqueeze(1) + (S - T);  // [R,S]
  std::vector<at::Tensor> heads;
  double largest = 0;
  for (int64_t h = 0; h < H; h++) {  // one head at a time: the exp map needs [R,S,2D]
    at::Tensor q = x[0].select(1, h), k = x[1].select(1, h), logits;
    if (problem.map.empty()) {
      logits = at::matmul(q, k.transpose(-1, -2)) / std::sqrt(static_cast<double>(D));
    } else {
      q = at::matmul(q, x[3].select(0, h));
      k = at::matmul(k, x[4].select(0, h));
      logits = exp_map_logits(q, k);
    }
    largest = std::max(largest, logits.abs().max().item<double>());
    if (problem.causal)
      logits = logits.masked_fill(hidden, -std::numeric_limits<double>::infinity());
    heads.push_back(at::matmul(at::softmax(logits, -1), x[2].select(1, h)));
  }
  const at::Tensor out = at::stack(heads, 1);  // [B,H,R,Dv]
  want_ = {out.detach()};
  std::vector<at::Tensor> inputs(x.begin(), x.begin() + num_inputs());
  std::vector<at::Tensor> grads = torch::autograd::grad(
      {out}, inputs, {problem.grad_out.index_select(2, rows_).to(at::kDouble)});
  grads[0] = at::zeros_like(problem.q, at::kDouble).index_copy(2, rows_, grads[0]);
  want_.insert(want_.end(), grads.begin(), grads.end());
  tolerance_ = 3e-5 + 16 * std::ldexp(1.0, -24) * largest;
}

double RowReference::worst_error(const std::vector<at::Tensor>& got) const {
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
