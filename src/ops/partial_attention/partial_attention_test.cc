#include "ops/partial_attention/partial_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "testing/tensor_expect.h"

namespace hedgerow::ops {
namespace {

using testing_support::expect_close;
using testing_support::expect_refused;
using PartialAttention = testing_support::SeededTest;

at::Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }
at::Tensor integers(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

TEST_F(PartialAttention, AllPositionsAndTheIdentityAreAttention) {
  const at::Tensor q = random({2, 4, 6, 3}), k = random({2, 2, 5, 3}), v = random({2, 2, 5, 7});
  const at::Tensor order = integers({3, 0, 4, 1, 2}),
                   r = at::eye(5, at::kDouble).index({order}).t();
  expect_close(partial_attention(q, k, v, order, r, {.is_causal = true}),
               softmax_attention(q, k, v, {}, true), 1e-12);
  const at::Tensor mean = random({4, 5});  // taken off and added again
  expect_close(
      partial_attention(q, k, v, order, r, {.mean = mean, .alpha = at::scalar_tensor(1.5)}),
      entmax_attention(q, k, v, at::scalar_tensor(1.5)), 1e-12);
}

TEST_F(PartialAttention, WithoutPositionsTheMeanIsTheScores) {
  const at::Tensor q = random({1, 2, 4, 3}), k = random({1, 2, 5, 3}), v = random({1, 2, 5, 7}),
                   mean = random({5});
  const at::Tensor out = partial_attention(q, k, v, at::empty({0}, at::kLong),
                                           at::empty({5, 0}, at::kDouble), {.mean = mean});
  expect_close(out, at::matmul(mean.softmax(0).expand({1, 2, 4, 5}), v), 1e-12);
}

TEST_F(PartialAttention, ASelectedKeyOfTheFutureCountsAsItsMean) {
  const at::Tensor q = random({1, 1, 4, 3}), k = random({1, 1, 4, 3}), v = random({1, 1, 4, 2}),
                   r = random({4, 2}), mean = random({4}), positions = integers({3, 0});
  const PartialOptions causal{.mean = mean, .is_causal = true};
  const at::Tensor before = partial_attention(q, k, v, positions, r, causal);
  k.select(2, 3).fill_(NAN);
  const at::Tensor after = partial_attention(q, k, v, positions, r, causal);
  EXPECT_TRUE(at::equal(before.narrow(2, 0, 3), after.narrow(2, 0, 3)));
  EXPECT_TRUE(after.select(2, 3).isnan().all().item<bool>());
}

TEST_F(PartialAttention, ReconstructionsByHeadKeepKeyHeadsGrouped) {
  const at::Tensor q = random({2, 4, 6, 3}), k = random({2, 2, 9, 3}), v = random({2, 2, 9, 5}),
                   r = random({4, 9, 2}), positions = integers({1, 7});
  const auto wide = [](const at::Tensor& t) { return t.repeat_interleave(2, 1); };
  expect_close(partial_attention(q, k, v, positions, r),
               partial_attention(q, wide(k), wide(v), positions, r), 1e-12);
}

TEST_F(PartialAttention, WeightsGiveTheirAttention) {
  const at::Tensor q = random({2, 4, 6, 3}), k = random({2, 4, 9, 3}), v = random({2, 4, 9, 5}),
                   positions = at::stack(
                       {integers({1, 7}), integers({4, 0}), integers({8, 3}), integers({2, 6})});
  for (const at::Tensor& r : {random({9, 2}), random({4, 9, 2}), random({1, 6, 9, 2})}) {
    const PartialOptions options{
        .mean = random({1, 6, 9}), .attn_mask = random({9}), .is_causal = true};
    expect_close(at::matmul(partial_attention_weights(q, k, positions, r, options), v),
                 partial_attention(q, k, v, positions, r, options), 1e-12);
  }
}

TEST_F(PartialAttention, WrongArgumentsAreNamed) {
  const at::Tensor x = at::ones({1, 2, 4, 3}), r = at::ones({4, 2});
  const auto refused = [&](const at::Tensor& positions, const at::Tensor& reconstruction,
                           const std::vector<std::string>& words) {
    expect_refused([&] { partial_attention(x, x, x, positions, reconstruction); },
                   "partial_attention", words);
  };
  refused(integers({1, 4}), r, {"[0, 4)", "got 4"});
  refused(integers({2, 2}), r, {"distinct", "got 2 twice"});
  refused(integers({1, 2}), at::ones({5, 2}), {"reconstruction", "S = 4", "[5, 2]"});
  expect_refused(
      [&] {
        partial_attention_selected(x, x, x, integers({0, 1, 2, 3}).view({1, 1, 4}), r);
      },
      "partial_attention_selected", {"[P] or [H, P]", "[1, 1, 4]"});
}

TEST_F(PartialAttention, GreedyTakesWhatExplainsMost) {
  // the sum of two independent scores explains more than either
  const at::Tensor mix = at::tensor({1.0, 0.0, 0.0, 1.0, 1.0, 1.0}, at::kDouble).view({3, 2});
  const at::Tensor covariance = at::matmul(mix, mix.t());
  EXPECT_TRUE(at::equal(greedy_positions(covariance, 2), integers({2, 0})));
  EXPECT_TRUE(at::equal(greedy_positions(at::eye(4), 4), integers({0, 1, 2, 3})));  // ties
  const at::Tensor r = lmmse_reconstruction(covariance, integers({2, 0}));
  expect_close(r, at::tensor({0.0, 1.0, 1.0, -1.0, 1.0, 0.0}, at::kDouble).view({3, 2}), 1e-12);
  expect_refused([&] { greedy_positions(covariance, 3); }, "greedy_positions", {"rank 2"});
  expect_refused(
      [&] {
        lmmse_reconstruction(covariance, integers({0, 1, 2}));
      },
      "lmmse_reconstruction", {"singular"});
}

}  // namespace
}  // namespace hedgerow::ops
