#include "metrics/embeddings.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/parallel.h"
#include "hedgerow/error.h"

namespace hedgerow::metrics {
namespace {

constexpr int64_t kTaskRows = 64;      // rows of one task
constexpr int64_t kColumnBlock = 512;  // columns whose sums stay in the first-level cache

double dot(const float* a, const float* b, int64_t width) {
  double sum = 0.0;
  for (int64_t i = 0; i < width; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// Rows scaled to length 1, transposed: [width, rows], so that the cosines of one row with many
// others are sums over contiguous memory.
std::vector<float> unit_rows_transposed(const EmbeddingView& a) {
  std::vector<float> result(a.rows * a.width);
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* row = a.data + r * a.width;
    const double norm = std::sqrt(dot(row, row, a.width));
    HEDGEROW_CHECK(std::isfinite(norm), "nearest_rows: embeddings must be finite; got row ", r);
    const double scale = norm > 0.0 ? 1.0 / norm : 0.0;
    for (int64_t i = 0; i < a.width; ++i) {
      result[i * a.rows + r] = static_cast<float>(row[i] * scale);
    }
  }
  return result;
}

// sims [rows] = cosines of row r with every row.
void cosines_of_row(const std::vector<float>& units, int64_t rows, int64_t width, int64_t r,
                    float* sims) {
  std::fill_n(sims, rows, 0.0f);
  for (int64_t begin = 0; begin < rows; begin += kColumnBlock) {
    const int64_t end = std::min(begin + kColumnBlock, rows);
    for (int64_t i = 0; i < width; ++i) {
      const float* column = units.data() + i * rows;
      const float x = column[r];
      for (int64_t s = begin; s < end; ++s) sims[s] += x * column[s];
    }
  }
}

}  // namespace

std::vector<double> row_cosines(const EmbeddingView& a, const EmbeddingView& b) {
  HEDGEROW_CHECK(a.rows == b.rows && a.width == b.width,
                 "row_cosines: both sets must have the same shape; got [", a.rows, ", ", a.width,
                 "] and [", b.rows, ", ", b.width, "]");
  std::vector<double> result(a.rows);
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* x = a.data + r * a.width;
    const float* y = b.data + r * b.width;
    const double norms = std::sqrt(dot(x, x, a.width)) * std::sqrt(dot(y, y, a.width));
    // A NaN must not pass for "no similarity".
    result[r] = norms == 0.0 ? 0.0 : dot(x, y, a.width) / norms;
  }
  return result;
}

double mean_cosine(const EmbeddingView& a, const EmbeddingView& b) {
  const std::vector<double> cosines = row_cosines(a, b);
  HEDGEROW_CHECK(!cosines.empty(), "mean_cosine: there must be at least one row; got none");
  return std::accumulate(cosines.begin(), cosines.end(), 0.0) / static_cast<double>(a.rows);
}

std::vector<std::vector<int64_t>> nearest_rows(const EmbeddingView& a, int64_t k) {
  HEDGEROW_CHECK(k >= 1 && a.rows > k, "nearest_rows: k must be 1 .. rows - 1; got k ", k, " and ",
                 a.rows, " rows");
  const std::vector<float> units = unit_rows_transposed(a);
  const int64_t num_tasks = (a.rows + kTaskRows - 1) / kTaskRows;
  std::vector<std::vector<float>> sims(max_workers(num_tasks), std::vector<float>(a.rows));
  std::vector<std::vector<int64_t>> orders(sims.size(), std::vector<int64_t>(a.rows));
  std::vector<std::vector<int64_t>> result(a.rows);
  parallel_for(num_tasks, [&](int64_t task, int64_t worker) {
    float* sim = sims[worker].data();
    std::vector<int64_t>& order = orders[worker];
    for (int64_t r = task * kTaskRows; r < std::min((task + 1) * kTaskRows, a.rows); ++r) {
      cosines_of_row(units, a.rows, a.width, r, sim);
      std::iota(order.begin(), order.end(), 0);
      std::swap(order[r], order.back());  // a row is no neighbour of itself
      std::partial_sort(
          order.begin(), order.begin() + k, order.end() - 1,
          [&](int64_t x, int64_t y) { return sim[x] != sim[y] ? sim[x] > sim[y] : x < y; });
      result[r].assign(order.begin(), order.begin() + k);
    }
  });
  return result;
}

NeighbourAgreement neighbour_agreement(const EmbeddingView& a, const EmbeddingView& b, int64_t k) {
  HEDGEROW_CHECK(a.rows == b.rows, "neighbour_agreement: both sets must have as many rows; got ",
                 a.rows, " and ", b.rows);
  const auto near_a = nearest_rows(a, k);
  const auto near_b = nearest_rows(b, k);
  int64_t same_nearest = 0;
  int64_t shared = 0;
  for (int64_t r = 0; r < a.rows; ++r) {
    same_nearest += near_a[r][0] == near_b[r][0];
    for (const int64_t other : near_a[r]) {
      shared += std::find(near_b[r].begin(), near_b[r].end(), other) != near_b[r].end();
    }
  }
  const auto rows = static_cast<double>(a.rows);
  return {static_cast<double>(same_nearest) / rows,
          static_cast<double>(shared) / (rows * static_cast<double>(k)), k};
}

}  // namespace hedgerow::metrics
