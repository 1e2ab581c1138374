#include "bench/attention_speed.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "bench/measure.h"
#include "bench/methods.h"
#include "bench/reference_rows.h"
#include "hedgerow/error.h"

namespace hedgerow::bench {
namespace {

// Inputs of one row and the calls that are timed on them.
class Problem {
 public:
  Problem(const AttentionBenchConfig& config, const AttentionBenchRow& row)
      : config_(config), method_(bench_method(row.method)), causal_(row.mask == "causal") {
    config_.alpha = row.alpha;
    config_.num_positions = row.positions;
    at::Generator generator = at::detail::createCPUGenerator(20261);
    if (method_.inputs != nullptr) {
      const BenchInputs inputs = method_.inputs(config_, row.length, generator);
      x_ = inputs.own;
      exact_x_ = inputs.exact;
      grad_out_ = at::randn(x_[0].sizes(), generator, at::kFloat);
      return;
    }
    const std::vector<int64_t> shape = {config.batch, config.heads, row.length, config.head_dim};
    auto normal = [&] { return at::randn(shape, generator, at::kFloat); };
    const at::Tensor q = normal() * config.input_scale, k = normal() * config.input_scale;
    const at::Tensor v = normal();
    grad_out_ = normal();
    x_ = exact_x_ = {q, k, v};
    if (method_.extra_inputs == nullptr) return;
    for (const at::Tensor& t : method_.extra_inputs(config_, generator)) x_.push_back(t);
  }

  void ours(bool backward) { call(method_.run, x_, backward); }
  void exact(bool backward) { call(method_.exact, exact_x_, backward); }
  void eager(bool backward) { call(method_.eager, x_, backward); }
  void sdpa(bool backward) {
    call(method_.sdpa != nullptr ? method_.sdpa : plain_sdpa, exact_x_, backward);
  }

  // Worst relative error of the output, and with `backward` of every gradient, on sampled queries;
  // sets *density. Throws Failure when it is beyond what float32 rounding explains.
  double check(bool backward, double* density) {
    const RowReference want(method_, config_, x_, grad_out_, causal_);
    *density = want.density();
    Tensors got = {method_.run(config_, x_, causal_).index_select(2, want.rows())};
    if (backward) {
      const at::Tensor saved = grad_out_;
      at::Tensor keep = at::zeros({x_[0].size(2), 1});
      keep.index_fill_(0, want.rows(), 1.0);
      grad_out_ = grad_out_ * keep;  // gradients then come from the sampled queries alone
      const Tensors grads = gradients(method_.run, x_);
      grad_out_ = saved;
      got.insert(got.end(), grads.begin(), grads.end());
    }
    const double error = want.worst_error(got);
    if (!(error <= want.tolerance()))
      throw Failure(concat("bench: wrong result, nothing timed: ", method_.name,
                           causal_ ? " causal" : " dense", " T=", x_[0].size(2),
                           backward ? " with gradients" : "", " is ", error,
                           " from float64, allowed ", want.tolerance()));
    return error;
  }

 private:
  using Call = at::Tensor (*)(const AttentionBenchConfig&, const Tensors&, bool);

  static at::Tensor plain_sdpa(const AttentionBenchConfig&, const Tensors& x, bool causal) {
    return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0.0, causal);
  }

  void call(Call forward, const Tensors& inputs, bool backward) {
    if (backward)
      gradients(forward, inputs);
    else
      forward(config_, inputs, causal_);
  }

  Tensors gradients(Call forward, const Tensors& inputs) {
    Tensors x;
    for (const at::Tensor& t : inputs) x.push_back(t.detach().requires_grad_(true));
    const at::Tensor out = forward(config_, x, causal_);
    // a formulation for one alpha has no gradient for it
    const bool allow_unused = forward == method_.eager;
    return torch::autograd::grad({out}, x, {grad_out_}, std::nullopt, false, allow_unused);
  }

  AttentionBenchConfig config_;
  const BenchMethod& method_;
  bool causal_;
  Tensors x_;        // q, k, v, then the method's own
  Tensors exact_x_;  // of exact attention
  at::Tensor grad_out_;
};

void validate(const AttentionBenchConfig& config) {
  auto one_of = [](const char* what, const std::vector<std::string>& given,
                   const std::vector<std::string>& known) {
    for (const std::string& g : given)
      HEDGEROW_CHECK(std::find(known.begin(), known.end(), g) != known.end(), "bench: unknown ",
                     what, "; got ", g);
  };
  for (const std::string& name : config.methods) bench_methods_named(name);
  for (const std::string& alpha : config.alphas) alpha_of(alpha, config.heads);
  one_of("mask", config.masks, {"dense", "causal"});
  one_of("step", config.steps, {"forward", "forward+backward"});
  for (int64_t T : config.lengths)
    HEDGEROW_CHECK(T >= 1, "bench: lengths must be at least 1; got ", T);
  for (int64_t P : config.positions)
    HEDGEROW_CHECK(P >= 1, "bench: --positions must be at least 1; got ", P);
  HEDGEROW_CHECK(config.batch >= 1 && config.heads >= 1 && config.head_dim >= 1 &&
                     config.rounds >= 1 && config.best_of >= 1,
                 "bench: batch, heads, head width, rounds and best-of must be at least 1; got ",
                 config.batch, ", ", config.heads, ", ", config.head_dim, ", ", config.rounds, ", ",
                 config.best_of);
}

metrics::AttentionShares multiplications(const AttentionBenchConfig& config,
                                         const BenchMethod& method, const AttentionBenchRow& row) {
  const metrics::AttentionSizes sizes = {row.length,      row.length,
                                         config.heads,    config.head_dim,
                                         config.head_dim, config.heads * config.head_dim};
  const auto cost = method.by_query.empty() ? metrics::partial_cost : metrics::own_positions_cost;
  return metrics::shares_of(cost(sizes, row.positions), metrics::exact_cost(sizes));
}

// What the lowest of several measurements is chosen by.
double figure(const AttentionBenchRow& row) {
  return row.exact_seconds ? *row.exact_ratio() : row.sdpa_seconds ? *row.ratio() : row.seconds;
}

AttentionBenchRow measure(const AttentionBenchConfig& config, AttentionBenchRow row) {
  const BenchMethod& method = bench_method(row.method);
  const bool back = is_training(row);
  Problem problem(config, row);
  double density = 0;
  row.error = problem.check(back, &density);
  if (method.takes_alpha) row.density = density;
  if (method.takes_positions) row.multiplications = multiplications(config, method, row);
  std::vector<Contender> contenders = {{"ours", [&] { problem.ours(back); }},
                                       {"peak", [] { fma_peak_flops(); }}};
  size_t sdpa = 0, eager = 0, exact = 0;  // their places; 0: not there
  const auto add = [&](const char* name, auto run) {
    contenders.push_back({name, run});
    return contenders.size() - 1;
  };
  if (row.length <= config.max_sdpa_length) sdpa = add("sdpa", [&] { problem.sdpa(back); });
  if (method.eager != nullptr && row.length <= config.max_eager_length)
    eager = add("eager", [&] { problem.eager(back); });
  if (method.exact != nullptr) exact = add("exact", [&] { problem.exact(back); });
  double peak = 0;
  for (int64_t attempt = 0; attempt < config.best_of; attempt++) {
    const std::vector<double> s = median_seconds(contenders, config.rounds, config.min_seconds);
    peak = std::max(peak, fma_peak_flops());
    AttentionBenchRow measured = row;
    measured.seconds = s[0];
    if (sdpa) measured.sdpa_seconds = s[sdpa];
    if (eager) measured.eager_seconds = s[eager];
    if (exact) measured.exact_seconds = s[exact];
    if (attempt == 0 || figure(measured) < figure(row)) row = measured;
  }
  row.gflops = method.flops(config, row) / row.seconds / 1e9;
  row.percent_of_peak = 100 * row.gflops * 1e9 / (peak * at::get_num_threads());
  if (config.memory) {
    row.peak_bytes = peak_bytes(contenders.front().run);
    if (sdpa) row.sdpa_peak_bytes = peak_bytes(contenders[sdpa].run);
    if (eager) row.eager_peak_bytes = peak_bytes(contenders[eager].run);
  }
  return row;
}

// The rows of one method, not measured yet.
std::vector<AttentionBenchRow> rows_of(const AttentionBenchConfig& config,
                                       const BenchMethod& method) {
  const std::vector<std::string> alphas =
      method.takes_alpha ? config.alphas : std::vector<std::string>{{}};
  const std::vector<int64_t> positions =
      method.takes_positions ? config.positions : std::vector<int64_t>{0};
  std::vector<AttentionBenchRow> rows;
  for (const std::string& alpha : alphas)
    for (const std::string& mask : config.masks)
      for (const std::string& step : config.steps)
        for (const int64_t length : config.lengths)
          for (const int64_t count : positions) {
            if (count > length) continue;
            AttentionBenchRow row;
            row.method = method.name;
            row.alpha = alpha;
            row.positions = count;
            row.mask = mask;
            row.step = step;
            row.length = length;
            row.heads = config.heads;
            row.head_dim = config.head_dim;
            rows.push_back(row);
          }
  return rows;
}

}  // namespace

std::vector<AttentionBenchRow> bench_attention(
    const AttentionBenchConfig& config,
    const std::function<void(const AttentionBenchRow&)>& report) {
  validate(config);
  std::vector<AttentionBenchRow> rows;
  for (const std::string& name : config.methods)
    for (const BenchMethod* method : bench_methods_named(name))
      for (const AttentionBenchRow& row : rows_of(config, *method)) {
        rows.push_back(measure(config, row));
        report(rows.back());
      }
  return rows;
}

}  // namespace hedgerow::bench
