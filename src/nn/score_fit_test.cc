#include "nn/score_fit.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hedgerow/error.h"

namespace hedgerow::nn {
namespace {

// Rows with a mean, correlations and a few strong directions.
at::Tensor some_rows(std::vector<int64_t> sizes, int64_t n, double offset = 3.0) {
  const at::Tensor mixing = at::randn({n, n}, at::kDouble) * at::linspace(2, 0.05, n, at::kDouble);
  sizes.push_back(n);
  return at::randn(sizes, at::kDouble).matmul(mixing.t()) + offset;
}

ScoreMoments moments_of(const at::Tensor& rows) {  // [groups..,N,n]
  std::vector<int64_t> groups = rows.sizes().vec();
  groups.resize(groups.size() - 2);
  ScoreMoments m = ScoreMoments::zeros(groups, rows.size(-1));
  m.add(rows);
  return m;
}

at::Tensor covariance_of(const at::Tensor& rows) {  // [N,n]
  const at::Tensor centred = rows - rows.mean(0);
  return centred.t().matmul(centred) / static_cast<double>(rows.size(0));
}

bool close(const at::Tensor& a, const at::Tensor& b, double tolerance = 1e-9) {
  return at::allclose(a, b, tolerance, tolerance * b.abs().max().item<double>());
}

TEST(ScoreMoments, PartsAddUpToTheWhole) {
  at::manual_seed(1);
  // A mean far from zero costs no digits.
  const at::Tensor rows = some_rows({3, 50}, 7, 1e4);  // [3,50,7]
  ScoreMoments streamed = ScoreMoments::zeros({3}, 7);
  for (const auto& [begin, count] : {std::pair{0, 1}, {1, 20}, {21, 0}, {21, 29}})
    streamed.add(rows.narrow(1, begin, count).to(at::kDouble));
  EXPECT_EQ(streamed.count, 50);
  for (int64_t g = 0; g < 3; ++g) {
    EXPECT_TRUE(close(streamed.mean[g], rows[g].mean(0), 1e-14));
    EXPECT_TRUE(close(streamed.covariance()[g], covariance_of(rows[g]), 1e-9));
  }
  ScoreMoments merged = moments_of(rows.narrow(1, 0, 13));
  merged.merge(moments_of(rows.narrow(1, 13, 37)));
  EXPECT_TRUE(close(merged.scatter, streamed.scatter));
}

TEST(ScoreMoments, PoolingIsAllRowsTogether) {
  at::manual_seed(2);
  const at::Tensor rows = some_rows({2, 3, 11}, 5);  // [2,3,11,5]
  const ScoreMoments m = moments_of(rows);
  EXPECT_TRUE(close(m.pooled(1).covariance()[1], covariance_of(rows[1].flatten(0, 1))));
  const ScoreMoments all = m.pooled().pooled();
  EXPECT_EQ(all.count, 66);
  EXPECT_TRUE(close(all.covariance(), covariance_of(rows.flatten(0, 2))));
  EXPECT_TRUE(close(all.mean, rows.flatten(0, 2).mean(0)));
}

TEST(ScoreMoments, GroupsWithinHaveMeansAlone) {
  at::manual_seed(12);
  const at::Tensor rows = some_rows({2, 3, 11}, 5) + at::randn({2, 3, 1, 5}, at::kDouble);
  ScoreMoments within = ScoreMoments::zeros({2, 3}, 5, 1);
  within.add(rows.narrow(2, 0, 4));
  within.add(rows.narrow(2, 4, 7));
  EXPECT_EQ(within.rows(), 33);
  const at::Tensor centred = rows - rows.mean(2, /*keepdim=*/true);
  EXPECT_TRUE(close(within.covariance()[1], covariance_of(centred[1].flatten(0, 1))));
  const ScoreMoments all = within.pooled_within();
  EXPECT_EQ(all.rows(), 66);
  EXPECT_TRUE(close(all.mean, rows.mean(2)));
  EXPECT_TRUE(close(all.covariance(), covariance_of(centred.flatten(0, 2))));
  const at::Tensor other = at::randn({2, 3, 5}, at::kDouble);
  const at::Tensor about = (rows - other.unsqueeze(2)).flatten(0, 2);
  EXPECT_TRUE(close(all.scatter_about(other), about.t().matmul(about)));
  // of groups by query, heads within
  const ScoreMoments by_query = moments_of(rows).pooled_within(0);
  EXPECT_TRUE(close(by_query.mean[2][1], rows[1][2].mean(0)));
  EXPECT_TRUE(close(by_query.covariance()[2], covariance_of(centred.select(1, 2).flatten(0, 1))));
}

TEST(ScoreMoments, CentredRowsHaveTheCentredCovariance) {
  at::manual_seed(3);
  const at::Tensor rows = some_rows({40}, 6);
  EXPECT_TRUE(close(row_centred(covariance_of(rows)),
                    covariance_of(rows - rows.mean(-1, /*keepdim=*/true))));
}

TEST(ScoreMoments, BadRowsAreRefusedAndChangeNothing) {
  ScoreMoments m = moments_of(at::randn({4, 3}, at::kDouble));
  const at::Tensor before = m.scatter.clone();
  at::Tensor rows = at::zeros({2, 3}, at::kDouble);
  rows[1][2] = std::nan("");
  EXPECT_THROW(m.add(rows), Error);
  EXPECT_THROW(m.add(at::zeros({2, 4}, at::kDouble)), Error);
  EXPECT_THROW(m.merge(ScoreMoments::zeros({2}, 3)), Error);
  EXPECT_THROW(m.pooled(), Error);
  EXPECT_THROW(ScoreMoments::zeros({}, 3).covariance(), Error);
  EXPECT_TRUE(at::equal(m.scatter, before));
  EXPECT_EQ(m.count, 4);
}

// Share of variance that the best linear prediction from the positions leaves.
double left_by_definition(const at::Tensor& c, std::vector<int64_t> positions) {
  const at::Tensor p = at::tensor(positions, at::kLong);
  const at::Tensor columns = c.index_select(1, p), among = columns.index_select(0, p);
  const at::Tensor explained = columns.matmul(at::linalg_pinv(among)).matmul(columns.t());
  return ((c - explained).diagonal().sum() / c.diagonal().sum()).item<double>();
}

std::vector<int64_t> listed(const at::Tensor& t) {
  return {t.const_data_ptr<int64_t>(), t.const_data_ptr<int64_t>() + t.numel()};
}

TEST(SelectPositions, EveryMethodAndItsResidual) {
  at::manual_seed(4);
  for (int round = 0; round < 20; ++round) {
    const int64_t n = 5 + round % 7;
    const at::Tensor c = covariance_of(some_rows({60}, n));
    for (const std::string& method : selection_methods()) {
      for (const bool first : {false, true}) {
        const int64_t count = 1 + round % n;
        const at::Tensor chosen = select_positions(method, c, count, first, round);
        std::vector<int64_t> list = listed(chosen);
        const std::vector<double> left = residual_shares(c, chosen);
        ASSERT_EQ(left.size(), static_cast<size_t>(count) + 1);
        for (int64_t i = 0; i <= count; ++i) {
          if (i > 0)
            EXPECT_NEAR(left[i], left_by_definition(c, {list.begin(), list.begin() + i}), 1e-8);
          else
            EXPECT_EQ(left[0], 1.0);
        }
        EXPECT_TRUE(!first || list.front() == 0) << method;
        std::sort(list.begin(), list.end());
        EXPECT_EQ(std::unique(list.begin(), list.end()), list.end()) << method;
        EXPECT_TRUE(list.front() >= 0 && list.back() < n);
      }
    }
  }
}

TEST(SelectPositions, PivotedCholeskyTakesTheLargestResidualVariance) {
  at::manual_seed(5);
  const at::Tensor c = covariance_of(some_rows({60}, 8));
  const std::vector<int64_t> chosen = listed(select_positions("cholesky", c, 4, false, 0));
  std::vector<int64_t> known;
  for (const int64_t next : chosen) {
    at::Tensor left = c;
    if (!known.empty()) {
      const at::Tensor p = at::tensor(known, at::kLong);
      const at::Tensor columns = c.index_select(1, p);
      left = c - columns.matmul(at::linalg_solve(columns.index_select(0, p), columns.t()));
    }
    EXPECT_EQ(next, left.diagonal().argmax().item<int64_t>());
    known.push_back(next);
  }
}

TEST(SelectPositions, FloorIsNeverPassed) {
  at::manual_seed(6);
  const at::Tensor c = covariance_of(some_rows({90}, 9));
  const std::vector<double> floor =
      residual_floor(std::get<0>(at::linalg_eigh(c)).flip(0).contiguous());
  const std::vector<double> greedy = residual_shares(c, select_positions("greedy", c, 9, false, 0));
  for (size_t i = 0; i <= 9; ++i) EXPECT_GE(greedy[i], floor[i] - 1e-12) << i;
  EXPECT_NEAR(greedy[9], 0, 1e-10);
}

TEST(SelectPositions, Refusals) {
  const at::Tensor c = at::eye(3, at::kDouble);
  EXPECT_THROW(select_positions("best", c, 1, false, 0), Error);
  EXPECT_THROW(select_positions("greedy", c, 0, false, 0), Error);
  EXPECT_THROW(select_positions("greedy", c, 4, false, 0), Error);
  const at::Tensor flat = at::ones({4, 4}, at::kDouble);  // of rank 1
  for (const char* method : {"greedy", "cholesky"})
    EXPECT_THROW(select_positions(method, flat, 2, false, 0), Error) << method;
  // a position that does not vary is no first choice
  at::Tensor still = at::eye(3, at::kDouble);
  still[0][0] = 0;
  EXPECT_EQ(listed(select_positions("greedy", still, 2, true, 0)), (std::vector<int64_t>{1, 2}));
}

TEST(FitReconstruction, ManyRowsGiveLeastSquares) {
  at::manual_seed(7);
  const at::Tensor rows = some_rows({4, 3000}, 6);
  std::vector<ScoreMoments> parts;
  for (int64_t i = 0; i < 4; ++i) parts.push_back(moments_of(rows[i]));
  const at::Tensor p = at::tensor({1, 4}, at::kLong);
  const ScoreReconstruction fit = fit_reconstruction(parts, p);
  const at::Tensor all = rows.flatten(0, 1);
  const at::Tensor centred = all - all.mean(0);
  const at::Tensor exact =
      std::get<0>(at::linalg_lstsq(centred.index_select(1, p), centred));  // [P,n]
  EXPECT_TRUE(close(fit.matrix, exact.t(), 1e-3));
  EXPECT_TRUE(close(fit.mean, all.mean(0)));
  EXPECT_NEAR(fit.left.item<double>(), left_by_definition(covariance_of(all), {1, 4}), 5e-3);
}

// What the moments say of held-out rows is what predicting them row by row says.
TEST(FitReconstruction, ShareLeftIsThatOfHeldOutRows) {
  at::manual_seed(8);
  const at::Tensor rows = some_rows({2, 12}, 5);  // few rows
  const at::Tensor p = at::tensor({0, 3}, at::kLong);
  const std::vector<ScoreMoments> parts = {moments_of(rows[0]), moments_of(rows[1])};
  const ScoreReconstruction fit = fit_reconstruction(parts, p);
  const double ridge = fit.ridge.item<double>();
  double error = 0, total = 0;
  for (int64_t held = 0; held < 2; ++held) {
    const at::Tensor train = rows[1 - held], mean = train.mean(0);
    const at::Tensor c = covariance_of(train), columns = c.index_select(1, p);
    at::Tensor among = columns.index_select(0, p);
    among = among + ridge * among.diagonal().mean() * at::eye(2, at::kDouble);
    const at::Tensor r = at::linalg_solve(among, columns.t()).t();
    const at::Tensor x = rows[held] - mean;
    error += (x - x.index_select(1, p).matmul(r.t())).square().sum().item<double>();
    total += x.square().sum().item<double>();
  }
  EXPECT_NEAR(fit.left.item<double>(), error / total, 1e-9);
}

TEST(FitReconstruction, GroupsAreFittedByThemselves) {
  at::manual_seed(9);
  const at::Tensor rows = some_rows({2, 3, 200}, 5);  // parts, groups
  const std::vector<ScoreMoments> parts = {moments_of(rows[0]), moments_of(rows[1])};
  const at::Tensor p = at::tensor({0, 1, 2, 3, 4, 0}, at::kLong).view({3, 2});
  const ScoreReconstruction fit = fit_reconstruction(parts, p);
  for (int64_t g = 0; g < 3; ++g) {
    const ScoreReconstruction one =
        fit_reconstruction({moments_of(rows[0][g]), moments_of(rows[1][g])}, p[g]);
    EXPECT_TRUE(close(fit.matrix[g], one.matrix)) << g;
    EXPECT_NEAR(fit.left[g].item<double>(), one.left.item<double>(), 1e-12);
  }
}

// Nothing was held out, so nothing is said of it.
TEST(FitReconstruction, OnePartAloneLeavesTheShareOpen) {
  at::manual_seed(10);
  const at::Tensor p = at::tensor({0, 3}, at::kLong);
  const ScoreReconstruction fit = fit_reconstruction({moments_of(some_rows({40}, 5))}, p);
  EXPECT_TRUE(std::isnan(fit.left.item<double>()));
  EXPECT_TRUE(fit.matrix.isfinite().all().item<bool>());
}

TEST(FitReconstruction, TooLittleDataIsRefused) {
  const std::vector<ScoreMoments> few = {moments_of(at::randn({2, 5}, at::kDouble))};
  EXPECT_THROW(fit_reconstruction(few, at::tensor({0, 1}, at::kLong)), Error);
  EXPECT_THROW(fit_reconstruction({}, at::tensor({0, 1}, at::kLong)), Error);
}

}  // namespace
}  // namespace hedgerow::nn
