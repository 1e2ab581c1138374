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
    at::Generator generator = at::detail::createCPUGenerator(20261);
    const std::vector<int64_t> shape = {config.batch, config.heads, row.length, config.head_dim};
    auto normal = [&] { return at::randn(shape, generator, at::kFloat); };
    const at::Tensor q = normal() * config.input_scale, k = normal() * config.input_scale;
    const at::Tensor v = normal();
    grad_out_ = normal();
    x_ = {q, k, v};
    if (method_.extra_inputs == nullptr) return;
    for (const at::Tensor& t : method_.extra_inputs(config_, generator)) x_.push_back(t);
  }

  void ours(bool backward) { call(method_.run, backward, x_.size()); }
  void eager(bool backward) { call(method_.eager, backward, x_.size()); }
  bool has_eager() const { return method_.eager != nullptr; }
  void sdpa(bool backward) {
    call(
        [](const AttentionBenchConfig&, const Tensors& x, bool causal) {
          return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0.0, causal);
        },
        backward, 3);
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
      const Tensors grads = gradients(method_.run, x_.size());
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

  void call(Call forward, bool backward, size_t num_inputs) {
    if (backward)
      gradients(forward, num_inputs);
    else
      forward(config_, x_, causal_);
  }

  Tensors gradients(Call forward, size_t num_inputs) {
    Tensors x;
    for (const at::Tensor& t : x_) x.push_back(t.detach().requires_grad_(x.size() < num_inputs));
    const at::Tensor out = forward(config_, x, causal_);
    const auto end = x.begin() + static_cast<int64_t>(num_inputs);
    // a formulation for one alpha has no gradient for it
    const bool allow_unused = forward == method_.eager;
    return torch::autograd::grad({out}, {x.begin(), end}, {grad_out_}, std::nullopt, false,
                                 allow_unused);
  }

  AttentionBenchConfig config_;
  const BenchMethod& method_;
  bool causal_;
  Tensors x_;  // q, k, v, then the method's own
  at::Tensor grad_out_;
};

void validate(const AttentionBenchConfig& config) {
  auto one_of = [](const char* what, const std::vector<std::string>& given,
                   const std::vector<std::string>& known) {
    for (const std::string& g : given)
      HEDGEROW_CHECK(std::find(known.begin(), known.end(), g) != known.end(), "bench: unknown ",
                     what, "; got ", g);
  };
  for (const std::string& name : config.methods) bench_method(name);
  for (const std::string& alpha : config.alphas) alpha_of(alpha, config.heads);
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
  Problem problem(config, row);
  double density = 0;
  row.error = problem.check(back, &density);
  if (bench_method(row.method).takes_alpha) row.density = density;
  std::vector<Contender> contenders = {{"ours", [&] { problem.ours(back); }},
                                       {"peak", [] { fma_peak_flops(); }}};
  size_t sdpa = 0, eager = 0;  // their places; 0: not there
  if (row.length <= config.max_sdpa_length) {
    sdpa = contenders.size();
    contenders.push_back({"sdpa", [&] { problem.sdpa(back); }});
  }
  if (problem.has_eager() && row.length <= config.max_eager_length) {
    eager = contenders.size();
    contenders.push_back({"eager", [&] { problem.eager(back); }});
  }
  double peak = 0;
  for (int64_t attempt = 0; attempt < config.best_of; attempt++) {
    const std::vector<double> s = median_seconds(contenders, config.rounds, config.min_seconds);
    peak = std::max(peak, fma_peak_flops());
    const bool better = attempt == 0 || (sdpa ? s[0] / s[sdpa] < *row.ratio() : s[0] < row.seconds);
    if (!better) continue;
    row.seconds = s[0];
    if (sdpa) row.sdpa_seconds = s[sdpa];
    if (eager) row.eager_seconds = s[eager];
  }
  row.gflops = bench_method(row.method).flops(config, row) / row.seconds / 1e9;
  row.percent_of_peak = 100 * row.gflops * 1e9 / (peak * at::get_num_threads());
  if (config.memory) {
    row.peak_bytes = peak_bytes(contenders.front().run);
    if (sdpa) row.sdpa_peak_bytes = peak_bytes(contenders[sdpa].run);
    if (eager) row.eager_peak_bytes = peak_bytes(contenders[eager].run);
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
    for (const std::string& alpha :
         bench_method(method).takes_alpha ? config.alphas : std::vector<std::string>{std::string()})
      for (const std::string& mask : config.masks)
        for (const std::string& step : config.steps)
          for (int64_t length : config.lengths) {
            AttentionBenchRow row;
            row.method = method;
            row.alpha = alpha;
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
