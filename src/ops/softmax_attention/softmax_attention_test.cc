#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "hedgerow/ops.h"
#include "testing/tensor_expect.h"

namespace hedgerow::ops {
namespace {

using testing_support::expect_close;
using testing_support::expect_refused;
using SoftmaxAttention = testing_support::SeededTest;

// Two keys whose scores differ by log 3: weights 1/4 and 3/4.
struct TwoKeys {
  at::Tensor q = at::ones({1, 1, 1, 1});
  at::Tensor k = at::tensor({0.0f, std::log(3.0f)}).view({1, 1, 2, 1});
  at::Tensor v = at::tensor({4.0f, 8.0f}).view({1, 1, 2, 1});
};

TEST_F(SoftmaxAttention, WeightsFollowTheScores) {
  const TwoKeys t;
  expect_close(softmax_attention(t.q, t.k, t.v), at::full({1, 1, 1, 1}, 7.0));
  expect_close(softmax_attention(t.q, t.k, t.v, {}, false, 0.0), at::full({1, 1, 1, 1}, 6.0));
}

TEST_F(SoftmaxAttention, OnlyMinusInfinityExcludes) {
  const TwoKeys t;
  const double lowest = std::numeric_limits<float>::lowest();
  const auto with = [&](double a, double b) {
    return softmax_attention(t.q, t.k, t.v, at::tensor({a, b}).to(at::kFloat)).item<double>();
  };
  EXPECT_DOUBLE_EQ(with(-INFINITY, lowest), 8.0);
  EXPECT_DOUBLE_EQ(with(lowest, -INFINITY), 4.0);
  EXPECT_DOUBLE_EQ(with(-INFINITY, -INFINITY), 0.0);
  EXPECT_DOUBLE_EQ(with(lowest, 0), 8.0);
}

TEST_F(SoftmaxAttention, MaskGradientHasTheMasksShape) {
  const at::Tensor q = at::randn({2, 4, 3, 8}), k = at::randn({2, 2, 5, 8}),
                   v = at::randn({2, 2, 5, 6});
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {5}, {3, 1}, {4, 1, 5}, {1, 4, 3, 5}, {2, 1, 1, 5}, {1, 1}}) {
    at::Tensor bias = at::randn(shape);
    bias.view(-1)[0] = -INFINITY;
    const at::Tensor own = bias.clone().requires_grad_(true);
    const at::Tensor wide = bias.expand({2, 4, 3, 5}).clone().requires_grad_(true);
    softmax_attention(q, k, v, own).square().sum().backward();
    softmax_attention(q, k, v, wide).square().sum().backward();
    expect_close(own.grad(), wide.grad().sum_to_size(shape), 1e-5);
    EXPECT_EQ(own.grad().view(-1)[0].item<float>(), 0.0f);
  }
}

TEST_F(SoftmaxAttention, CausalityIsAlignedToTheEnd) {
  const at::Tensor q = at::randn({1, 2, 4, 8}), k = at::randn({1, 2, 6, 8}),
                   v = at::randn({1, 2, 6, 8});
  const at::Tensor out = softmax_attention(q, k, v, {}, true);
  for (int64_t t = 0; t < 4; t++)
    expect_close(out.narrow(2, t, 1), softmax_attention(q.narrow(2, t, 1), k.narrow(2, 0, t + 3),
                                                        v.narrow(2, 0, t + 3)));
  const at::Tensor early =
      softmax_attention(at::randn({1, 2, 8, 8}), k, v, {}, true).narrow(2, 0, 2);
  EXPECT_EQ(early.abs().max().item<float>(), 0.0f);
}

TEST_F(SoftmaxAttention, SameTensorThreeTimes) {
  const at::Tensor x = at::randn({1, 2, 5, 8}).requires_grad_(true);
  softmax_attention(x, x, x).square().sum().backward();
  const at::Tensor fused = x.grad().clone();
  const at::Tensor q = x.detach().clone().requires_grad_(true),
                   k = q.detach().clone().requires_grad_(true),
                   v = q.detach().clone().requires_grad_(true);
  softmax_attention(q, k, v).square().sum().backward();
  expect_close(fused, q.grad() + k.grad() + v.grad(), 1e-5);
}

TEST_F(SoftmaxAttention, WrongArgumentsAreNamed) {
  const TwoKeys t;
  expect_refused(
      [&] {
        softmax_attention(t.q, t.k, at::ones({1, 1, 3, 1}));
      },
      "softmax_attention", {"k and v", "[1, 1, 2, 1]", "[1, 1, 3, 1]"});
  expect_refused([&] { softmax_attention(t.q, t.k, t.v, at::ones({2}, at::kLong)); },
                 "softmax_attention", {"int64"});
  expect_refused([&] { softmax_attention(t.q, t.k, t.v, {}, false, {}, 0.1); }, "softmax_attention",
                 {"dropout_seed"});
}

}  // namespace
}  // namespace hedgerow::ops
