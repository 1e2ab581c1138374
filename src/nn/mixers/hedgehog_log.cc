#include "nn/mixers/hedgehog_log.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "hedgerow/error.h"
#include "nn/mixers/masked_rows.h"

namespace hedgerow::nn {
namespace {

// Features may span e^kSafeSpan before a product of two of them needs care: the smallest sum is
// then e^-60 = 9e-27, far from float32's smallest normal number 1e-38, and so is its reciprocal
// from the largest in the backward. Nothing is lost above that: all terms are positive.
double safe_span(at::ScalarType dtype) { return dtype == at::kDouble ? 600.0 : 60.0; }

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

at::Tensor log_with_floor(const at::Tensor& p, const std::optional<at::Tensor>& visible) {
  constexpr double kFloor = 1e-6;
  // The floor moves with the row (also in the gradient), so that scaling all features down, which
  // changes no weight, does not look like a gain.
  const at::Tensor mean = visible
                              ? p.masked_fill(visible->logical_not(), 0).sum(-1, /*keepdim=*/true) /
                                    visible->sum(-1, /*keepdim=*/true).clamp_min(1)
                              : p.mean(-1, /*keepdim=*/true);
  return (p + kFloor * mean.clamp_min(kFloor)).log();
}

}  // namespace hedgerow::nn
