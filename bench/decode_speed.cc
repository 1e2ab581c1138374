#include <ATen/ATen.h>

#include <cmath>

#include "bench/attention_speed.h"
#include "bench/measure.h"
#include "hedgerow/error.h"
#include "hedgerow/kernels/linear.h"
#include "hedgerow/ops.h"

namespace hedgerow::bench {
namespace {

kernels::ConstTensor read_view(const at::Tensor& t) {
  return {t.const_data_ptr(), t.stride(0), t.stride(1), t.stride(2)};
}
kernels::MutTensor write_view(const at::Tensor& t) {
  return {t.mutable_data_ptr(), t.stride(0), t.stride(1), t.stride(2)};
}

struct Token {
  at::Tensor q, k, v, wq, wk, s, z, m, out;

  explicit Token(const AttentionBenchConfig& config) {
    auto generator = at::detail::createCPUGenerator(7);
    const int64_t B = config.batch, H = config.heads, D = config.head_dim;
    auto normal = [&](std::vector<int64_t> shape) {
      return at::randn(shape, generator, at::kFloat);
    };
    q = normal({B, H, 1, D});
    k = normal({B, H, 1, D});
    v = normal({B, H, 1, D});
    wq = normal({H, D, D}) / std::sqrt(static_cast<double>(D));
    wk = normal({H, D, D}) / std::sqrt(static_cast<double>(D));
    s = at::zeros({B, H, 2 * D, D});
    z = at::zeros({B, H, 2 * D});
    m = at::zeros({B, H, 2 * D});
    out = at::empty({B, H, 1, D});
  }

  kernels::HedgehogStep params() const {
    kernels::HedgehogStep p;
    p.batch = q.size(0);
    p.heads = p.kv_heads = q.size(1);
    p.dim = p.width = p.value_dim = q.size(3);
    p.q = read_view(q);
    p.k = read_view(k);
    p.v = read_view(v);
    p.wq = wq.const_data_ptr();
    p.wk = wk.const_data_ptr();
    p.s = s.mutable_data_ptr();
    p.z = z.mutable_data_ptr();
    p.m = m.mutable_data_ptr();
    p.out = write_view(out);
    return p;
  }
};

// One step from an empty state returns the token's own value; the second is checked by the
// operator, whose state travels apart.
void check(const AttentionBenchConfig& config) {
  Token kernel(config), op(config);
  const kernels::HedgehogStep p = kernel.params();
  kernels::hedgehog_attention_step(p);
  const double first = (kernel.out - kernel.v).abs().max().item<double>();
  if (!(first <= 1e-5))
    throw Failure(
        concat("bench: wrong result, nothing timed: decode is ", first, " from its value"));
  kernel.v.mul_(-2);
  kernels::hedgehog_attention_step(p);
  const auto one = ops::hedgehog_attention_state(op.q, op.k, op.v, op.wq, op.wk);
  auto [out, s, z, m] =
      ops::hedgehog_attention_state(op.q, op.k, op.v * -2, op.wq, op.wk, {}, {}, "exp", {},
                                    std::get<1>(one), std::get<2>(one), std::get<3>(one));
  const double second = (kernel.out - out).abs().max().item<double>();
  if (!(second <= 1e-5))
    throw Failure(
        concat("bench: wrong result, nothing timed: decode is ", second, " from two calls"));
}

}  // namespace

DecodeBenchRow bench_decode(const AttentionBenchConfig& config) {
  check(config);
  Token kernel(config), op(config);
  const kernels::HedgehogStep p = kernel.params();
  DecodeBenchRow row;
  row.heads = config.heads;
  row.head_dim = config.head_dim;
  const std::vector<double> s = median_seconds(
      {{"kernel", [&] { kernels::hedgehog_attention_step(p); }},
       {"operator",
        [&] {
          ops::hedgehog_step_(op.q, op.k, op.v, op.wq, op.wk, {}, {}, "exp", op.s, op.z, op.m);
        }}},
      config.rounds, config.min_seconds);
  row.kernel_seconds = s[0];
  row.operator_seconds = s[1];
  return row;
}

}  // namespace hedgerow::bench
