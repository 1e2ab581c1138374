#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/parallel.h"
#include "gtest/gtest.h"
#include "hedgerow/error.h"
#include "metrics/embeddings.h"
#include "metrics/statistics.h"

namespace hedgerow::metrics {
namespace {

struct Matrix {
  std::vector<float> data;
  int64_t rows, width;
  EmbeddingView view() const { return {data.data(), rows, width}; }
};

Matrix random_matrix(int64_t rows, int64_t width, uint32_t seed) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal;
  Matrix m{std::vector<float>(rows * width), rows, width};
  for (float& x : m.data) x = normal(bits);
  return m;
}

// The definition: all cosines in double, fully sorted.
std::vector<std::vector<int64_t>> nearest_by_definition(const Matrix& m, int64_t k) {
  const auto cosine = [&](int64_t r, int64_t s) {
    double xy = 0, xx = 0, yy = 0;
    for (int64_t i = 0; i < m.width; ++i) {
      const double x = m.data[r * m.width + i], y = m.data[s * m.width + i];
      xy += x * y, xx += x * x, yy += y * y;
    }
    return xy / std::sqrt(xx * yy);
  };
  std::vector<std::vector<int64_t>> result(m.rows);
  for (int64_t r = 0; r < m.rows; ++r) {
    std::vector<std::pair<double, int64_t>> all;
    for (int64_t s = 0; s < m.rows; ++s) {
      if (s != r) all.emplace_back(-cosine(r, s), s);
    }
    std::sort(all.begin(), all.end());
    for (int64_t i = 0; i < k; ++i) result[r].push_back(all[i].second);
  }
  return result;
}

TEST(Embeddings, Cosines) {
  const Matrix a{{3, 4, 1, 0, 0, 0, 2, 0}, 4, 2};
  const Matrix b{{6, 8, 0, 5, 1, 1, -7, 0}, 4, 2};
  const std::vector<double> got = row_cosines(a.view(), b.view());
  const std::vector<double> expected = {1.0, 0.0, 0.0, -1.0};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(got[i], expected[i], 1e-15);
  EXPECT_NEAR(mean_cosine(a.view(), b.view()), 0.0, 1e-15);
  Matrix broken = a;
  broken.data[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(mean_cosine(broken.view(), b.view())));
  EXPECT_THROW(row_cosines(a.view(), Matrix{{1, 2}, 1, 2}.view()), Error);
  EXPECT_THROW(mean_cosine({nullptr, 0, 2}, {nullptr, 0, 2}), Error);
}

TEST(Embeddings, NearestRowsFollowTheDefinition) {
  for (const int64_t rows : {11, 63, 64, 65, 700}) {
    for (const int64_t width : {7, 33}) {  // at width 1 there are only ties
      const Matrix m = random_matrix(rows, width, 5);
      EXPECT_EQ(nearest_rows(m.view(), 10), nearest_by_definition(m, 10)) << rows << " " << width;
    }
  }
}

TEST(Embeddings, TiesRankByRowNumber) {
  const Matrix m{{1, 0, 1, 0, 1, 0, 1, 0}, 4, 2};
  EXPECT_EQ(nearest_rows(m.view(), 3),
            (std::vector<std::vector<int64_t>>{{1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}}));
}

TEST(Embeddings, AgreementCountsSharedNeighbours) {
  // Rows at angles; in b row 0 moved beside row 3.
  const auto at = [](std::vector<double> angles) {
    Matrix m{{}, static_cast<int64_t>(angles.size()), 2};
    for (const double t : angles) {
      m.data.push_back(static_cast<float>(std::cos(t)));
      m.data.push_back(static_cast<float>(std::sin(t)));
    }
    return m;
  };
  const Matrix a = at({0.0, 0.1, 1.0, 1.3});  // nearest: 1 0 3 2
  const Matrix b = at({1.4, 0.1, 1.0, 1.3});  // nearest: 3 2 3 0
  const NeighbourAgreement got = neighbour_agreement(a.view(), b.view(), 1);
  EXPECT_DOUBLE_EQ(got.nearest, 0.25);
  EXPECT_DOUBLE_EQ(got.top_k, 0.25);
  // Two nearest in a: {1,2} {0,2} {3,1} {2,1}; in b: {3,2} {2,3} {3,0} {0,2}.
  EXPECT_DOUBLE_EQ(neighbour_agreement(a.view(), b.view(), 2).top_k, 4.0 / 8.0);
  const NeighbourAgreement same = neighbour_agreement(a.view(), a.view(), 3);
  EXPECT_DOUBLE_EQ(same.nearest, 1.0);
  EXPECT_DOUBLE_EQ(same.top_k, 1.0);
}

TEST(Embeddings, AgreementIgnoresScaleAndWidth) {
  const Matrix a = random_matrix(130, 16, 1);
  Matrix b{std::vector<float>(130 * 32), 130, 32};
  for (int64_t r = 0; r < 130; ++r) {
    for (int64_t i = 0; i < 16; ++i) b.data[r * 32 + 2 * i] = a.data[r * 16 + i] * (1.0f + r);
  }
  const NeighbourAgreement got = neighbour_agreement(a.view(), b.view());
  EXPECT_EQ(got.k, 10);
  EXPECT_DOUBLE_EQ(got.nearest, 1.0);
  EXPECT_DOUBLE_EQ(got.top_k, 1.0);
}

TEST(Embeddings, IndependentOfThreads) {
  const Matrix m = random_matrix(300, 24, 9);
  const auto one = nearest_rows(m.view(), 10);
  set_num_threads(3);
  EXPECT_EQ(nearest_rows(m.view(), 10), one);
  set_num_threads(1);
}

TEST(Embeddings, RefusesWhatItCannotRank) {
  Matrix m = random_matrix(10, 4, 0);
  EXPECT_THROW(nearest_rows(m.view(), 10), Error);
  EXPECT_THROW(nearest_rows(m.view(), 0), Error);
  EXPECT_THROW(neighbour_agreement(m.view(), random_matrix(11, 4, 0).view(), 2), Error);
  m.data[7] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(nearest_rows(m.view(), 2), Error);
}

TEST(Statistics, Correlations) {
  // scipy.stats.pearsonr and spearmanr of the same values.
  const std::vector<double> x = {1, 2, 3, 4, 5, 6}, y = {2, 1, 4, 3, 7, 5.5},
                            t = {1, 1, 2, 2, 2, 3};
  EXPECT_NEAR(pearson(x, y), 0.8267772737836244, 1e-14);
  EXPECT_NEAR(spearman(x, y), 0.8285714285714287, 1e-14);
  EXPECT_NEAR(spearman(y, t), 0.802377419802878, 1e-14);
  const std::vector<double> down = {6, 5, 4, 3, 2, 1}, flat(6, 2.0);
  EXPECT_DOUBLE_EQ(pearson(x, down), -1.0);
  EXPECT_TRUE(std::isnan(pearson(x, flat)));
  EXPECT_EQ(mean_ranks(t), (std::vector<double>{1.5, 1.5, 4, 4, 4, 6}));
  EXPECT_THROW(pearson(x, std::vector<double>{1, 2}), Error);
  EXPECT_THROW(spearman(std::vector<double>{1}, std::vector<double>{1}), Error);
  EXPECT_THROW(pearson(std::vector<double>{1, NAN}, std::vector<double>{1, 2}), Error);
}

TEST(Statistics, Accuracy) {
  const std::vector<int64_t> a = {1, 2, 3, 4}, b = {1, 0, 3, 0};
  EXPECT_DOUBLE_EQ(accuracy(a, b), 0.5);
  EXPECT_THROW(accuracy(a, std::vector<int64_t>{1}), Error);
  EXPECT_THROW(accuracy({}, {}), Error);
}

TEST(Statistics, Histogram) {
  const std::vector<double> values = {-0.1, 0, 0.24, 0.25, 0.5, 0.99, 1.0, 1.01, NAN, INFINITY};
  const Histogram h = histogram(values, 0, 1, 4);
  EXPECT_EQ(h.counts, (std::vector<int64_t>{2, 1, 1, 2}));
  EXPECT_EQ(h.below, 1);
  EXPECT_EQ(h.above, 1);
  EXPECT_EQ(h.not_finite, 2);
  EXPECT_THROW(histogram(values, 1, 1, 4), Error);
  EXPECT_THROW(histogram(values, 0, 1, 0), Error);
}

}  // namespace
}  // namespace hedgerow::metrics
