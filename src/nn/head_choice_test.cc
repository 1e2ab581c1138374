#include "nn/head_choice.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "hedgerow/error.h"

namespace hedgerow::nn {
namespace {

// [count,H,H] Gram matrices of random rows.
at::Tensor random_grams(int64_t count, int64_t heads) {
  const at::Tensor rows = at::randn({count, heads, 3 * heads}, at::kDouble);
  return at::matmul(rows, rows.transpose(1, 2));
}

// What least squares in the kept heads leaves of head h, by the normal equations.
double left_of(const at::Tensor& gram, int64_t h, const std::vector<int64_t>& kept) {
  const at::Tensor at = at::tensor(kept, at::kLong);
  const at::Tensor among = gram.index_select(0, at).index_select(1, at);
  const at::Tensor with = gram.select(0, h).index_select(0, at);
  const at::Tensor solved = at::linalg_solve(among, with);
  return ((gram.select(0, h).select(0, h) - with.dot(solved)) / gram.select(0, h).select(0, h))
      .item<double>();
}

TEST(HeadChoice, EachStepIsTheBestOne) {
  at::manual_seed(1);
  for (int round = 0; round < 20; ++round) {
    constexpr int64_t kHeads = 6;
    const at::Tensor grams = random_grams(kHeads, kHeads);
    std::vector<int64_t> want;
    for (int64_t step = 0; step < 4; ++step) {
      double least = std::numeric_limits<double>::infinity();
      int64_t best = -1;
      for (int64_t j = 0; j < kHeads; ++j) {
        if (std::count(want.begin(), want.end(), j) > 0) continue;
        std::vector<int64_t> with = want;
        with.push_back(j);
        double left = 0;
        for (int64_t h = 0; h < kHeads; ++h) left += left_of(grams[h], h, with);
        if (left < least) {
          least = left;
          best = j;
        }
      }
      want.push_back(best);
      StandIns got = choose_stand_ins(grams, step + 1);
      std::vector<int64_t> sorted = want;
      std::sort(sorted.begin(), sorted.end());
      EXPECT_EQ(got.kept, sorted);
      EXPECT_EQ(got.coefficients.sizes(), at::IntArrayRef({step + 1, kHeads}));
    }
  }
}

TEST(HeadChoice, KeptHeadsStandForThemselves) {
  at::manual_seed(2);
  const StandIns got = choose_stand_ins(random_grams(5, 5), 3);
  for (size_t i = 0; i < got.kept.size(); ++i) {
    const at::Tensor column = got.coefficients.select(1, got.kept[i]);
    for (int64_t j = 0; j < 3; ++j) {
      EXPECT_NEAR(column[j].item<double>(), j == static_cast<int64_t>(i) ? 1.0 : 0.0, 1e-5);
    }
  }
}

TEST(HeadChoice, EqualHeadsShareWithoutFailing) {
  const at::Tensor ones = at::ones({3, 3, 3}, at::kDouble);
  const StandIns got = choose_stand_ins(ones, 2);
  EXPECT_EQ(got.kept, (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE(at::allclose(got.coefficients.sum(0), at::ones({3}, at::kDouble), 1e-4, 1e-4));
}

TEST(HeadChoice, PruningTakesTheLeastAwayFirst) {
  // the last two nearly cancel
  at::Tensor c = at::diag(at::tensor({9.0, 1.0, 4.0, 4.0}, at::kDouble));
  c[2][3] = c[3][2] = -3.9;
  EXPECT_EQ(prune_heads(c, 3), (std::vector<int64_t>{0, 2, 3}));
  EXPECT_EQ(prune_heads(c, 2), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(prune_heads(c, 1), (std::vector<int64_t>{0}));
  EXPECT_EQ(prune_heads(c, 4).size(), 4u);
  EXPECT_THROW(prune_heads(c, 0), Error);
  EXPECT_THROW(prune_heads(c, 5), Error);
}

}  // namespace
}  // namespace hedgerow::nn
