#include "bench/attention_speed.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "bench/measure.h"
#include "bench/reference_rows.h"
#include "hedgerow/error.h"
#include "hedgerow/ops.h"

namespace hedgerow::bench {
namespace {

// Inputs of one row and the calls that are timed on them.
class Problem {
 public:
  Problem(const AttentionBenchConfig& config, const std::string& method, bool causal,
          int64_t length)
      : method_(method), map_(config.map), causal_(causal) {
    auto generator = at::detail::createCPUGenerator(20261);
    const std::vector<int64_t> shape = {config.batch, config.heads, length, config.head_dim};
    auto normal = [&](const std::vector<int64_t>& s) {
      return at::randn(s, generator, at::kFloat);
    };
    q_ = normal(shape) * config.input_scale;
    k_ = normal(shape) * config.input_scale;
    v_ = normal(shape);
    grad_out_ = normal(shape);
    // Near the identity, where maps start and stay: y = x W is of the size of x.
    const int64_t D = config.head_dim;
    wq_ = at::eye(D).repeat({config.heads, 1, 1}) +
          normal({config.heads, D, D}) * (0.1 / std::sqrt(D));
    wk_ = at::eye(D).repeat({config.heads, 1, 1}) +
          normal({config.heads, D, D}) * (0.1 / std::sqrt(D));
  }

  at::Tensor ours() const { return ours(q_, k_, v_, wq_, wk_); }
  at::Tensor sdpa() const { return at::scaled_dot_product_attention(q_, k_, v_, {}, 0.0, causal_); }

  void ours_with_gradients() {
    gradients([this](const auto& x) { return ours(x[0], x[1], x[2], x[3], x[4]); });
  }
  void sdpa_with_gradients() {
    gradients(
        [this](const auto& x) {
          return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0.0, causal_);
        },
        3);
  }

  // Worst relative error of the output, and with `backward` of every gradient, on sampled queries.
  // Throws Failure when it is beyond what float32 rounding explains.
  double check(bool backward) {
    RowReference want({q_, k_, v_, wq_, wk_, grad_out_, causal_, method_ == "softmax" ? "" : map_});
    at::Tensor keep = at::zeros({q_.size(2), 1});
    keep.index_fill_(0, want.rows(), 1.0);
    const at::Tensor saved = grad_out_;
    grad_out_ = grad_out_ * keep;  // gradients then come from the sampled queries alone
    std::vector<at::Tensor> got = {ours().index_select(2, want.rows())};
    if (backward) {
      auto g = gradients([this](const auto& x) { return ours(x[0], x[1], x[2], x[3], x[4]); },
                         want.num_inputs());
      got.insert(got.end(), g.begin(), g.end());
    }
    grad_out_ = saved;
    const double error = want.worst_error(got);
    if (!(error <= want.tolerance()))
      throw Failure(concat("bench: wrong result, nothing timed: ", method_,
                           causal_ ? " causal" : " dense", " T=", q_.size(2),
                           backward ? " with gradients" : "", " is ", error,
                           " from float64, allowed ", want.tolerance()));
    return error;
  }

 private:
  at::Tensor ours(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const at::Tensor& wq, const at::Tensor& wk) const {
    if (method_ == "softmax") return ops::softmax_attention(q, k, v, {}, causal_);
    return ops::hedgehog_attention(q, k, v, wq, wk, {}, {}, map_, {}, causal_);
  }

  template <typename F>
  std::vector<at::Tensor> gradients(F forward, size_t num_inputs = 5) {
    std::vector<at::Tensor> x;
    for (const at::Tensor& t : {q_, k_, v_, wq_, wk_})
      x.push_back(t.detach().requires_grad_(x.size() < num_inputs));
    if (method_ == "softmax") num_inputs = 3;
    const at::Tensor out = forward(x);
    return torch::autograd::grad({out}, {x.begin(), x.begin() + num_inputs}, {grad_out_});
  }

  std::string method_, map_;
  bool causal_;
  at::Tensor q_, k_, v_, grad_out_, wq_, wk_;
};

// Products that the scheme executes (docs/methods/*.md), a causal triangle counted half.
double flops(const AttentionBenchConfig& config, const AttentionBenchRow& row) {
  const double T = row.length, D = config.head_dim, heads = config.batch * config.heads;
  const bool back = row.step == "forward+backward";
  if (row.method == "softmax") {
    const double pairs = row.mask == "causal" ? T * (T + 1) / 2 : T * T;
    return heads * pairs * (back ? 14 : 4) * D;
  }
  const double products = !back ? 6 : row.mask == "causal" ? 24 : 20;
  return heads * T * 2 * D * D * products;
}

void validate(const AttentionBenchConfig& config) {
  auto one_of = [](const char* what, const std::vector<std::string>& given,
                   const std::vector<std::string>& known) {
    for (const std::string& g : given)
      HEDGEROW_CHECK(std::find(known.begin(), known.end(), g) != known.end(), "bench: unknown ",
                     what, "; got ", g);
  };
  one_of("method", config.methods, {"softmax", "hedgehog"});
  one_of("mask", config.masks, {"dense", "causal"});
  one_of("step", config.steps, {"forward", "forward+backward"});
  for (int64_t T : config.lengths)
    HEDGEROW_CHECK(T >= 1, "bench: lengths must be at least 1; got ", T);
  HEDGEROW_CHECK(config.batch >= 1 && config.heads >= 1 && config.head_dim >= 1 &&
                     config.rounds >= 1 && config.best_of >= 1,
                 "bench: batch, heads, head width, rounds and best-of must be at least 1; got ",
                 config.batch, ", ", config.heads, ", ", config.head_dim, ", ", config.rounds, ", ",
                 config.best_of);
}

AttentionBenchRow measure(const AttentionBenchConfig& config, AttentionBenchRow row) {
  const bool back = row.step == "forward+backward";
  Problem problem(config, row.method, row.mask == "causal", row.length);
  row.error = problem.check(back);
  std::vector<Contender> contenders = {
      {"ours", [&] { back ? problem.ours_with_gradients() : (void)problem.ours(); }},
      {"peak", [] { fma_peak_flops(); }}};
  if (row.length <= config.max_sdpa_length)
    contenders.push_back(
        {"sdpa", [&] { back ? problem.sdpa_with_gradients() : (void)problem.sdpa(); }});
  double peak = 0;
  for (int64_t attempt = 0; attempt < config.best_of; attempt++) {
    const std::vector<double> s = median_seconds(contenders, config.rounds, config.min_seconds);
    peak = std::max(peak, fma_peak_flops());
    const bool better =
        attempt == 0 || (s.size() == 3 ? s[0] / s[2] < *row.ratio() : s[0] < row.seconds);
    if (!better) continue;
    row.seconds = s[0];
    if (s.size() == 3) row.sdpa_seconds = s[2];
  }
  row.gflops = flops(config, row) / row.seconds / 1e9;
  row.percent_of_peak = 100 * row.gflops * 1e9 / (peak * at::get_num_threads());
  if (config.memory) {
    row.peak_bytes = peak_bytes(contenders.front().run);
    if (row.sdpa_seconds) row.sdpa_peak_bytes = peak_bytes(contenders.back().run);
  }
  return row;
}

}  // namespace

std::vector<AttentionBenchRow> bench_attention(
    const AttentionBenchConfig& config,
    const std::function<void(const AttentionBenchRow&)>& report) {
  validate(config);
  std::vector<AttentionBenchRow> rows;
  for (const std::string& method : config.methods)
    for (const std::string& mask : config.masks)
      for (const std::string& step : config.steps)
        for (int64_t length : config.lengths) {
          AttentionBenchRow row;
          row.method = method;
          row.mask = mask;
          row.step = step;
          row.length = length;
          row.heads = config.heads;
          row.head_dim = config.head_dim;
          rows.push_back(measure(config, row));
          report(rows.back());
        }
  return rows;
}

}  // namespace hedgerow::bench
