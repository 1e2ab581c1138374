#include "bench/methods.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "bench/eager_entmax.h"
#include "hedgerow/error.h"
#include "hedgerow/ops.h"

namespace hedgerow::bench {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

double pairs_of(const AttentionBenchConfig& config, const AttentionBenchRow& row) {
  const double T = static_cast<double>(row.length);
  const double pairs = row.mask == "causal" ? T * (T + 1) / 2 : T * T;
  return static_cast<double>(config.batch * config.heads) * pairs;
}

bool is_training(const AttentionBenchRow& row) { return row.step == "forward+backward"; }

// Scaled scores of sampled queries [B,R,S].
at::Tensor row_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& hidden,
                      double* largest) {
  const at::Tensor scores =
      at::matmul(q, k.transpose(-1, -2)) / std::sqrt(static_cast<double>(q.size(-1)));
  *largest = std::max(*largest, scores.detach().abs().max().item<double>());
  return scores.masked_fill(hidden, -kInf);
}

// ---- softmax -----------------------------------------------------------------------------------

at::Tensor run_softmax(const AttentionBenchConfig&, const Tensors& x, bool causal) {
  return ops::softmax_attention(x[0], x[1], x[2], {}, causal);
}

at::Tensor softmax_rows(const AttentionBenchConfig&, const Tensors&, int64_t, const at::Tensor& q,
                        const at::Tensor& k, const at::Tensor& hidden, double* largest) {
  return row_scores(q, k, hidden, largest).softmax(-1);
}

double softmax_flops(const AttentionBenchConfig& config, const AttentionBenchRow& row) {
  return pairs_of(config, row) * (is_training(row) ? 14 : 4) * static_cast<double>(config.head_dim);
}

// ---- Hedgehog ----------------------------------------------------------------------------------

// Maps near the identity, where they start and stay: y = x W is of the size of x.
Tensors hedgehog_maps(const AttentionBenchConfig& config, at::Generator& generator) {
  const int64_t D = config.head_dim;
  const auto map = [&] {
    return at::eye(D).repeat({config.heads, 1, 1}) +
           at::randn({config.heads, D, D}, generator, at::kFloat) *
               (0.1 / std::sqrt(static_cast<double>(D)));
  };
  const at::Tensor wq = map();
  return {wq, map()};
}

at::Tensor run_hedgehog(const AttentionBenchConfig& config, const Tensors& x, bool causal) {
  return ops::hedgehog_attention(x[0], x[1], x[2], x[3], x[4], {}, {}, config.map, {}, causal);
}

at::Tensor hedgehog_rows(const AttentionBenchConfig& config, const Tensors& x, int64_t head,
                         const at::Tensor& q, const at::Tensor& k, const at::Tensor& hidden,
                         double* largest) {
  HEDGEROW_CHECK(config.map == "exp", "bench: a reference exists for the exp map; got ",
                 config.map);
  const at::Tensor yq = at::matmul(q, x[3].select(0, head)),
                   yk = at::matmul(k, x[4].select(0, head));
  const at::Tensor y = yq.unsqueeze(2) + yk.unsqueeze(1);  // [B,R,S,D]
  const at::Tensor logits = at::logsumexp(at::cat({y, -y}, -1), {-1});
  *largest = std::max(*largest, logits.detach().abs().max().item<double>());
  return logits.masked_fill(hidden, -kInf).softmax(-1);
}

double hedgehog_flops(const AttentionBenchConfig& config, const AttentionBenchRow& row) {
  const double D = static_cast<double>(config.head_dim);
  const double products = !is_training(row) ? 6 : row.mask == "causal" ? 24 : 20;
  return static_cast<double>(config.batch * config.heads * row.length) * 2 * D * D * products;
}

// ---- entmax ------------------------------------------------------------------------------------

Tensors entmax_alpha(const AttentionBenchConfig& config, at::Generator&) {
  return {alpha_of(config.alpha, config.heads).to(at::kFloat)};
}

at::Tensor run_entmax(const AttentionBenchConfig&, const Tensors& x, bool causal) {
  return ops::entmax_attention(x[0], x[1], x[2], x[3], {}, causal);
}

at::Tensor run_eager_entmax(const AttentionBenchConfig& config, const Tensors& x, bool causal) {
  at::Tensor scores =
      at::matmul(x[0], x[1].transpose(-1, -2)) / std::sqrt(static_cast<double>(config.head_dim));
  if (causal) {
    const at::Tensor hidden =
        at::ones({scores.size(-2), scores.size(-1)}, at::kBool).triu(1);  // T = S
    scores = scores.masked_fill(hidden, -kInf);
  }
  const at::Tensor p = config.alpha == "1.5" ? eager_entmax15(scores)
                                             : eager_entmax_bisect(scores, x[3].view({-1, 1, 1}));
  return at::matmul(p, x[2]);
}

at::Tensor entmax_rows(const AttentionBenchConfig&, const Tensors& x, int64_t head,
                       const at::Tensor& q, const at::Tensor& k, const at::Tensor& hidden,
                       double* largest) {
  return ops::entmax(row_scores(q, k, hidden, largest), x[3].select(0, head));
}

// q k^T for all pairs; weights on v, and in the backward four products, for pairs with a weight.
double entmax_flops(const AttentionBenchConfig& config, const AttentionBenchRow& row) {
  const double D = static_cast<double>(config.head_dim), density = row.density.value_or(1.0);
  return pairs_of(config, row) * 2 * D * (1 + density * (is_training(row) ? 5 : 1));
}

}  // namespace

const std::vector<BenchMethod>& bench_methods() {
  static const std::vector<BenchMethod> methods = {
      {"softmax", false, nullptr, run_softmax, nullptr, softmax_rows, softmax_flops},
      {"hedgehog", false, hedgehog_maps, run_hedgehog, nullptr, hedgehog_rows, hedgehog_flops},
      {"entmax", true, entmax_alpha, run_entmax, run_eager_entmax, entmax_rows, entmax_flops},
  };
  return methods;
}

const BenchMethod& bench_method(const std::string& name) {
  std::string known;
  for (const BenchMethod& method : bench_methods()) {
    if (method.name == name) return method;
    known += (known.empty() ? "" : ", ") + method.name;
  }
  throw Error(concat("bench: --method must be one of ", known, "; got ", name));
}

at::Tensor alpha_of(const std::string& text, int64_t heads) {
  if (text == "mix") return at::linspace(1.2, 1.9, heads, at::kDouble);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  HEDGEROW_CHECK(error == std::errc() && end == text.data() + text.size() && value >= 1 &&
                     std::isfinite(value),
                 "bench: --alpha must be mix or a number, at least 1; got ", text);
  return at::full({heads}, value, at::kDouble);
}

}  // namespace hedgerow::bench
