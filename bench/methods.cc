#include "bench/methods.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "bench/eager_entmax.h"
#include "bench/partial_methods.h"
#include "hedgerow/error.h"
#include "hedgerow/ops.h"

namespace hedgerow::bench {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Scaled scores of all pairs [B,H,T,S].
at::Tensor scores_of(const Tensors& x) {
  return at::matmul(x[0], x[1].transpose(-1, -2)) / std::sqrt(static_cast<double>(x[0].size(-1)));
}

// The same with -inf at hidden keys.
at::Tensor row_scores(const Tensors& x, const at::Tensor& hidden, double* largest) {
  const at::Tensor scores = scores_of(x);
  raise_to(scores, largest);
  return scores.masked_fill(hidden, -kInf);
}

// Scores [B,H,T,T] without the keys after a query.
at::Tensor hide_later_keys(const at::Tensor& scores, bool causal) {
  if (!causal) return scores;
  const at::Tensor later = at::ones({scores.size(-2), scores.size(-1)}, at::kBool).triu(1);
  return scores.masked_fill(later, -kInf);
}

at::Tensor eager_entmax(const AttentionBenchConfig& config, const at::Tensor& scores,
                        const at::Tensor& alpha) {
  return config.alpha == "1.5" ? eager_entmax15(scores)
                               : eager_entmax_bisect(scores, alpha.view({-1, 1, 1}));
}

// ---- softmax -----------------------------------------------------------------------------------

at::Tensor run_softmax(const AttentionBenchConfig&, const Tensors& x, bool causal) {
  return ops::softmax_attention(x[0], x[1], x[2], {}, causal);
}

at::Tensor softmax_rows(const AttentionBenchConfig&, const Tensors& x, const at::Tensor& hidden,
                        double* largest) {
  return row_scores(x, hidden, largest).softmax(-1);
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

at::Tensor hedgehog_rows(const AttentionBenchConfig& config, const Tensors& x,
                         const at::Tensor& hidden, double* largest) {
  HEDGEROW_CHECK(config.map == "exp", "bench: a reference exists for the exp map; got ",
                 config.map);
  Tensors heads;
  for (int64_t head = 0; head < config.heads; head++) {  // one at a time: [B,R,S,2D] each
    const at::Tensor yq = at::matmul(x[0].select(1, head), x[3].select(0, head)),
                     yk = at::matmul(x[1].select(1, head), x[4].select(0, head));
    const at::Tensor y = yq.unsqueeze(2) + yk.unsqueeze(1);  // [B,R,S,D]
    heads.push_back(at::logsumexp(at::cat({y, -y}, -1), {-1}));
    raise_to(heads.back(), largest);
  }
  return at::stack(heads, 1).masked_fill(hidden, -kInf).softmax(-1);
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
  return at::matmul(eager_entmax(config, hide_later_keys(scores_of(x), causal), x[3]), x[2]);
}

at::Tensor entmax_rows(const AttentionBenchConfig&, const Tensors& x, const at::Tensor& hidden,
                       double* largest) {
  return ops::entmax(row_scores(x, hidden, largest), x[3].view({1, -1, 1, 1}));
}

// q k^T for all pairs; weights on v, and in the backward four products, for pairs with a weight.
double entmax_flops(const AttentionBenchConfig& config, const AttentionBenchRow& row) {
  const double D = static_cast<double>(config.head_dim), density = row.density.value_or(1.0);
  return pairs_of(config, row) * 2 * D * (1 + density * (is_training(row) ? 5 : 1));
}

// ---- talking heads -----------------------------------------------------------------------------

// Heads of a [B,H,T,S] mixed by p [H,H]: sum_a a[:,a] p[a,:].
at::Tensor mix_heads(const at::Tensor& a, const at::Tensor& p) {
  return at::einsum("bats,ah->bhts", {a, p});
}

Tensors random_projections(const AttentionBenchConfig& config, at::Generator& generator) {
  const int64_t H = config.heads;
  const auto projection = [&] {
    return at::randn({H, H}, generator, at::kFloat) / std::sqrt(static_cast<double>(H));
  };
  const at::Tensor logits = projection();
  return {logits, projection()};
}

Tensors random_projections_and_alpha(const AttentionBenchConfig& config, at::Generator& generator) {
  Tensors inputs = random_projections(config, generator);
  inputs.push_back(entmax_alpha(config, generator).front());
  return inputs;
}

// x: q, k, v, both projections and, for entmax, alpha.
at::Tensor run_talking_heads(const AttentionBenchConfig&, const Tensors& x, bool causal) {
  ops::TalkingHeadsOptions options;
  options.logits_proj = x[3];
  options.weights_proj = x[4];
  options.is_causal = causal;
  if (x.size() > 5) options.alpha = x[5];
  return ops::talking_heads_attention(x[0], x[1], x[2], options);
}

// Whole tensors of scores and weights of all heads, before and after each mixing.
at::Tensor run_eager_talking_heads(const AttentionBenchConfig& config, const Tensors& x,
                                   bool causal) {
  const at::Tensor logits = hide_later_keys(mix_heads(scores_of(x), x[3]), causal);
  const at::Tensor weights = x.size() > 5 ? eager_entmax(config, logits, x[5]) : logits.softmax(-1);
  return at::matmul(mix_heads(weights, x[4]), x[2]);
}

at::Tensor talking_heads_rows(const AttentionBenchConfig&, const Tensors& x,
                              const at::Tensor& hidden, double* largest) {
  const at::Tensor scores = scores_of(x);
  raise_to(mix_heads(scores.abs(), x[3].abs()), largest);  // rounding is of the terms of the sums
  const at::Tensor logits = mix_heads(scores, x[3]).masked_fill(hidden, -kInf);
  const at::Tensor weights =
      x.size() > 5 ? ops::entmax(logits, x[5].view({1, -1, 1, 1})) : logits.softmax(-1);
  return mix_heads(weights, x[4]);
}

// kernels/talking_heads.h; a training step is the forward and the backward.
double talking_heads_flops(const AttentionBenchConfig& config, const AttentionBenchRow& row) {
  const double D = static_cast<double>(config.head_dim), H = static_cast<double>(config.heads);
  return pairs_of(config, row) * 2 * (is_training(row) ? 7 * D + 9 * H : 2 * D + 2 * H);
}

}  // namespace

double pairs_of(const AttentionBenchConfig& config, const AttentionBenchRow& row) {
  const double T = static_cast<double>(row.length);
  const double pairs = row.mask == "causal" ? T * (T + 1) / 2 : T * T;
  return static_cast<double>(config.batch * config.heads) * pairs;
}

bool is_training(const AttentionBenchRow& row) { return row.step == "forward+backward"; }

void raise_to(const at::Tensor& sizes, double* largest) {
  *largest = std::max(*largest, sizes.detach().abs().max().item<double>());
}

const std::vector<BenchMethod>& bench_methods() {
  static const std::vector<BenchMethod> methods = [] {
    std::vector<BenchMethod> all = {
        {"softmax", false, nullptr, run_softmax, nullptr, softmax_rows, softmax_flops},
        {"hedgehog", false, hedgehog_maps, run_hedgehog, nullptr, hedgehog_rows, hedgehog_flops},
        {"entmax", true, entmax_alpha, run_entmax, run_eager_entmax, entmax_rows, entmax_flops},
        {"talking_heads", false, random_projections, run_talking_heads, run_eager_talking_heads,
         talking_heads_rows, talking_heads_flops},
        {"talking_heads_entmax", true, random_projections_and_alpha, run_talking_heads,
         run_eager_talking_heads, talking_heads_rows, talking_heads_flops},
    };
    for (const BenchMethod& method : partial_methods()) all.push_back(method);
    return all;
  }();
  return methods;
}

std::vector<const BenchMethod*> bench_methods_named(const std::string& name) {
  std::vector<const BenchMethod*> found;
  std::string known;
  for (const BenchMethod& method : bench_methods()) {
    const bool in_family = !method.family.empty() && name == method.family;
    if (name == method.name || in_family) found.push_back(&method);
    known += (known.empty() ? "" : ", ") + method.name;
    if (!method.family.empty()) known += " (of " + method.family + ")";
  }
  HEDGEROW_CHECK(!found.empty(), "bench: --method must be one of ", known, "; got ", name);
  return found;
}

const BenchMethod& bench_method(const std::string& name) {
  const BenchMethod& found = *bench_methods_named(name).front();
  HEDGEROW_CHECK(found.name == name, "bench: ", name, " is several methods");
  return found;
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
