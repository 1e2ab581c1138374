#include "nn/mixers/hedgehog_log.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "nn/mixers/masked_rows.h"

namespace hedgerow::nn {
namespace {

// Features may span e^40 before a product of two of them needs care: the smallest sum is then
// e^-40, and even its square's reciprocal, in second derivatives, is below float32's largest number
// e^88 (float64: e^709). Nothing is lost above that: all terms are positive.
double safe_span(at::ScalarType dtype) { return dtype == at::kDouble ? 300.0 : 40.0; }

constexpr int64_t kPairsAtOnce = int64_t{1} << 16;  // bounds the gathered rows: 64 Ki x F numbers

double largest_span(const at::Tensor& a) {
  if (a.numel() == 0) return 0;
  return (a.amax(-1) - a.amin(-1)).max().item<double>();
}

// Replaces the entries of `log_sums` where `lost` by exact values.
at::Tensor repair(const at::Tensor& log_sums, const at::Tensor& lost, const at::Tensor& a,
                  const at::Tensor& b, const at::Tensor& a_max) {
  const int64_t group = a.size(1) / b.size(1);
  std::vector<at::Tensor> at_pairs = lost.nonzero().unbind(1);  // indices b, h, t, s, each [N]
  std::vector<at::Tensor> exact;
  const int64_t num_pairs = at_pairs[0].size(0);
  if (num_pairs == 0) return log_sums;
  for (int64_t first = 0; first < num_pairs; first += kPairsAtOnce) {
    const int64_t count = std::min(kPairsAtOnce, num_pairs - first);
    const auto part = [&](int i) { return at_pairs[i].narrow(0, first, count); };
    const at::Tensor kv_head = part(1).div(group, "floor");
    const at::Tensor sums =
        a.index({part(0), part(1), part(2)}) + b.index({part(0), kv_head, part(3)});  // [count,F]
    exact.push_back(sums.logsumexp(-1) - a_max.index({part(0), part(1), part(2)}).squeeze(-1));
  }
  const c10::List<std::optional<at::Tensor>> where(
      {at_pairs[0], at_pairs[1], at_pairs[2], at_pairs[3]});
  return log_sums.index_put(where, at::cat(exact));
}

// log(p / sum_s p) of p = a . b over visible keys, for a, b whose products are neither 0 nor
// infinite. Few passes over [T,S], which is what its time goes to.
class NormalisedProduct : public torch::autograd::Function<NormalisedProduct> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& a,
                            const at::Tensor& b, const std::optional<at::Tensor>& excluded) {
    const auto [p, sums] = product(a, b, excluded.value_or(at::Tensor()));
    ctx->save_for_backward({a, b, p, sums, excluded.value_or(at::Tensor())});
    return p.log().sub_(sums.log());
  }

  // d log w_j / d p_i = [i = j] / p_i - 1 / sum p.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &a = saved[0], &b = saved[1], &excluded = saved[4];
    at::Tensor p = saved[2], sums = saved[3];
    // For second derivatives p and its sums must depend on a and b again.
    if (at::GradMode::is_enabled()) std::tie(p, sums) = product(a, b, excluded);
    const at::Tensor& g = gradients[0];
    const at::Tensor g_sum =
        (excluded.defined() ? g.masked_fill(excluded, 0) : g).sum(-1, /*keepdim=*/true);
    at::Tensor dp = g / p - g_sum / sums;
    if (excluded.defined()) dp = dp.masked_fill(excluded, 0);
    const auto [da, db] = grouped_matmul_backward(dp, a, b);
    return {da, db, at::Tensor()};
  }

 private:
  // [B,H,T,S], 0 where excluded, and its sums [B,H,T,1], 1 for rows that see no key.
  static std::pair<at::Tensor, at::Tensor> product(const at::Tensor& a, const at::Tensor& b,
                                                   const at::Tensor& excluded) {
    at::Tensor p = grouped_matmul(a, b);
    if (excluded.defined()) p = p.masked_fill_(excluded, 0);
    const at::Tensor sums = p.sum(-1, /*keepdim=*/true);
    return {p, sums.masked_fill(sums == 0, 1)};
  }
};

}  // namespace

at::Tensor hedgehog_log_features(const std::string& map, const at::Tensor& y, const at::Tensor& x) {
  if (map == "exp") return at::cat({y, -y}, -1);
  if (map == "exp_half") return y;
  if (map == "softmax") return at::cat({y.log_softmax(-1), (-y).log_softmax(-1)}, -1);
  if (map == "softmax_joint") return at::cat({2 * y, -2 * y}, -1).log_softmax(-1);
  if (map == "elu") {
    // 1 + elu(y) is 1 + y above 0 and exp(y) below.
    return at::where(y > 0, y.clamp_min(0).log1p(), y);
  }
  if (map == "performer") {
    const double width = static_cast<double>(y.size(-1));
    return y - x.square().sum(-1, /*keepdim=*/true) / 2 - std::log(width) / 2;
  }
  throw std::logic_error("map " + map + " has no positive features");
}

at::Tensor log_dot_exp(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor a_max = a.detach().amax(-1, /*keepdim=*/true);                // [B,H,T,1]
  const at::Tensor b_max = b.detach().amax(-1, /*keepdim=*/true);                // [B,Hkv,S,1]
  const at::Tensor sums = grouped_matmul((a - a_max).exp(), (b - b_max).exp());  // [B,H,T,S]
  const at::Tensor key_max =
      b_max.transpose(2, 3).repeat_interleave(a.size(1) / b.size(1), 1);  // [B,H,1,S]
  // max_f (a_f + b_f) >= max a + max b - min(span of a, span of b).
  const double span = std::min(largest_span(a.detach()), largest_span(b.detach()));
  const double safe = safe_span(a.scalar_type());
  if (!(span > safe)) return sums.log() + key_max;
  const at::Tensor lost = sums.detach() < std::exp(-safe);
  return repair(sums.masked_fill(lost, 1).log() + key_max, lost, a, b, a_max);
}

at::Tensor log_normalised_dot_exp(const at::Tensor& a, const at::Tensor& b,
                                  const std::optional<at::Tensor>& visible) {
  at::Tensor a_max, b_max;
  double span = 0;
  {
    const at::NoGradGuard no_grad;
    if (a.numel() > 0 && b.numel() > 0) {
      a_max = a.amax(-1, /*keepdim=*/true);      // [B,H,T,1]
      b_max = b.amax({2, 3}, /*keepdim=*/true);  // [B,Hkv,1,1]: drops out of the rows
      // max_f (a_f + b_f) >= max a + max b - span of b, over all keys of a head.
      span = (b_max - b.amin({2, 3}, /*keepdim=*/true)).max().item<double>();
    }
  }
  if (!a_max.defined() || !(span <= safe_span(a.scalar_type()))) {
    return log_normalise(log_dot_exp(a, b), visible);
  }
  std::optional<at::Tensor> excluded;
  if (visible) excluded = visible->logical_not();
  return NormalisedProduct::apply((a - a_max).exp(), (b - b_max).exp(), excluded);
}

}  // namespace hedgerow::nn
