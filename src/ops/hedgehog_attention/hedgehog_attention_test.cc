#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "hedgerow/ops.h"
#include "testing/tensor_expect.h"

namespace hedgerow::ops {
namespace {

using testing_support::expect_close;
using testing_support::expect_refused;
using HedgehogAttention = testing_support::SeededTest;

at::Tensor identity(int64_t heads, int64_t dim, at::ScalarType dtype) {
  return at::eye(dim, dtype).expand({heads, dim, dim}).contiguous();
}

TEST_F(HedgehogAttention, IdentityMapIsASumOfHyperbolicCosines) {
  const at::Tensor q = at::randn({1, 2, 5, 3}, at::kDouble),
                   k = at::randn({1, 2, 6, 3}, at::kDouble),
                   v = at::randn({1, 2, 6, 4}, at::kDouble), w = identity(2, 3, at::kDouble);
  const at::Tensor weights = (q.unsqueeze(3) + k.unsqueeze(2)).cosh().sum(-1);  // [1,2,5,6]
  expect_close(hedgehog_attention(q, k, v, w, w), at::matmul(weights / weights.sum(-1, true), v),
               1e-12);
  expect_close(hedgehog_attention_weights(q, k, w, w), weights / weights.sum(-1, true), 1e-12);
}

// Exponents far outside float32, anti-aligned and with one huge later key: still the formula.
TEST_F(HedgehogAttention, ExpIsTheFormulaAtAnySize) {
  for (const double size : {1.0, 60.0, 400.0, 1e4}) {
    const at::Tensor q = at::randn({1, 2, 40, 4}) * size, v = at::randn({1, 2, 40, 3}),
                     w = identity(2, 4, at::kFloat);
    at::Tensor k = at::randn({1, 2, 40, 4}) * size - q;
    k.select(2, 30).mul_(50);
    for (const bool causal : {false, true}) {
      const at::Tensor y = (q.unsqueeze(3) + k.unsqueeze(2)).to(at::kDouble);  // [1,2,40,40,4]
      at::Tensor log_weights = at::logsumexp(at::cat({y, -y}, -1), -1);
      if (causal)
        log_weights = log_weights.masked_fill(at::ones({40, 40}, at::kBool).triu(1), -INFINITY);
      const at::Tensor want = at::matmul(log_weights.softmax(-1), v.to(at::kDouble));
      // exponents of this size are known to eps * size only
      const double tolerance = 1e-5 + 50 * size * 0x1p-22;
      expect_close(hedgehog_attention(q, k, v, w, w, {}, {}, "exp", {}, causal), want, tolerance);
      const at::Tensor weights = hedgehog_attention_weights(q, k, w, w, {}, {}, "exp", {}, causal);
      expect_close(at::matmul(weights, v), want, tolerance);
    }
  }
}

TEST_F(HedgehogAttention, EveryStateIsReachedByStepsToo) {
  const at::Tensor q = at::randn({1, 4, 9, 3}) * 30, k = at::randn({1, 2, 9, 3}) * 30,
                   v = at::randn({1, 2, 9, 4}), wq = identity(4, 3, at::kFloat),
                   wk = identity(2, 3, at::kFloat);
  const at::Tensor whole = hedgehog_attention(q, k, v, wq, wk, {}, {}, "exp", {}, true);
  at::Tensor s = at::zeros({1, 2, 6, 4}), z = at::zeros({1, 2, 6}), m = at::zeros({1, 2, 6});
  for (int64_t t = 0; t < 9; t++) {
    const int64_t version = s._version();
    const at::Tensor out = hedgehog_step_(q.narrow(2, t, 1), k.narrow(2, t, 1), v.narrow(2, t, 1),
                                          wq, wk, {}, {}, "exp", s, z, m);
    expect_close(out, whole.narrow(2, t, 1), 1e-5);
    EXPECT_GT(s._version(), version);
  }
}

TEST_F(HedgehogAttention, WrongArgumentsAreNamed) {
  const at::Tensor x = at::ones({1, 2, 3, 4}), w = identity(2, 4, at::kFloat);
  expect_refused(
      [&] {
        hedgehog_attention(x, x, x, w, at::ones({1, 4, 4}));
      },
      "hedgehog_attention", {"wk", "[1, 4, 4]", "[1, 2, 3, 4]"});
  at::Tensor s = at::zeros({1, 2, 8, 4}), z = at::zeros({1, 2, 8}), m = at::zeros({1, 2, 8});
  expect_refused([&] { hedgehog_step_(x, x, x, w, w, {}, {}, "exp", s, z, m); }, "hedgehog_step_",
                 {"one token"});
  expect_refused([&] { hedgehog_attention_state(x, x, x, w, w, {}, {}, "exp", {}, {}, {}, m); },
                 "hedgehog_attention_state", {"m must be given with s and z"});
}

}  // namespace
}  // namespace hedgerow::ops
