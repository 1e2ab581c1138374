#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "hedgerow/ops.h"
#include "testing/tensor_expect.h"

namespace hedgerow::ops {
namespace {

using testing_support::expect_close;
using testing_support::expect_refused;
using LinearAttention = testing_support::SeededTest;

TEST_F(LinearAttention, IsItsFormula) {
  const at::Tensor q = at::rand({2, 4, 9, 3}, at::kDouble),
                   k = at::rand({2, 2, 11, 3}, at::kDouble),
                   v = at::randn({2, 2, 11, 5}, at::kDouble);
  const at::Tensor keys = k.repeat_interleave(2, 1), values = v.repeat_interleave(2, 1);
  const at::Tensor scores = at::matmul(q, keys.transpose(2, 3));
  for (const bool causal : {false, true}) {
    const at::Tensor w = causal ? scores.tril(2) : scores;
    expect_close(linear_attention(q, k, v, {}, causal), at::matmul(w / w.sum(-1, true), values),
                 1e-12);
  }
}

TEST_F(LinearAttention, ZeroNormaliserGivesZerosAndZeroGradients) {
  const at::Tensor q = at::zeros({1, 1, 2, 3}).requires_grad_(true),
                   k = at::rand({1, 1, 4, 3}).requires_grad_(true),
                   v = at::randn({1, 1, 4, 2}).requires_grad_(true);
  const at::Tensor out = linear_attention(q, k, v);
  out.square().sum().backward();
  for (const at::Tensor& t : {out, q.grad(), k.grad(), v.grad()})
    EXPECT_EQ(t.abs().max().item<float>(), 0.0f);
}

TEST_F(LinearAttention, StateIsFreshAndSplitsAgree) {
  const at::Tensor q = at::rand({1, 2, 10, 3}), k = at::rand({1, 2, 10, 3}),
                   v = at::randn({1, 2, 10, 4});
  const auto [whole, s, z] = linear_attention_state(q, k, v);
  expect_close(whole, linear_attention(q, k, v, {}, true), 1e-5);
  const auto [first, s1, z1] =
      linear_attention_state(q.narrow(2, 0, 4), k.narrow(2, 0, 4), v.narrow(2, 0, 4));
  const at::Tensor kept = s1.clone();
  const auto [second, s2, z2] =
      linear_attention_state(q.narrow(2, 4, 6), k.narrow(2, 4, 6), v.narrow(2, 4, 6), {}, s1, z1);
  expect_close(at::cat({first, second}, 2), whole, 1e-5);
  expect_close(s2, s, 1e-5);
  expect_close(z2, z, 1e-5);
  EXPECT_TRUE(at::equal(s1, kept));
  const auto [none, s3, z3] =
      linear_attention_state(q.narrow(2, 0, 0), k.narrow(2, 0, 0), v.narrow(2, 0, 0), {}, s1, z1);
  EXPECT_TRUE(at::equal(s3, s1));
  EXPECT_NE(s3.data_ptr(), s1.data_ptr());
}

TEST_F(LinearAttention, BFloat16SumsDoNotStall) {
  const at::Tensor ones = at::ones({1, 1, 2048, 1}, at::kBFloat16);
  const auto [out, s, z] = linear_attention_state(ones, ones, ones);
  EXPECT_EQ(z.scalar_type(), at::kFloat);
  EXPECT_EQ(z.item<float>(), 2048.0f);
}

TEST_F(LinearAttention, WrongArgumentsAreNamed) {
  const at::Tensor x = at::ones({1, 2, 3, 4});
  expect_refused(
      [&] {
        linear_attention(x, x, x, at::ones({1, 4}, at::kBool));
      },
      "linear_attention", {"key_mask", "[1, 3]", "[1, 4]"});
  expect_refused(
      [&] {
        linear_attention_state(x, x, x, {}, at::ones({1, 2, 4, 4}, at::kDouble),
                               at::ones({1, 2, 4}));
      },
      "linear_attention_state", {"float32", "float64"});
}

}  // namespace
}  // namespace hedgerow::ops
