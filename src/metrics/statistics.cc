#include "metrics/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "hedgerow/error.h"

namespace hedgerow::metrics {
namespace {

void check_pairs(const char* where, std::span<const double> x, std::span<const double> y) {
  HEDGEROW_CHECK(x.size() == y.size() && x.size() >= 2, where,
                 ": both sides must have the same number of values, at least 2; got ", x.size(),
                 " and ", y.size());
  const auto finite = [](double v) { return std::isfinite(v); };
  HEDGEROW_CHECK(std::all_of(x.begin(), x.end(), finite) && std::all_of(y.begin(), y.end(), finite),
                 where, ": values must be finite; got one that is not");
}

double mean(std::span<const double> x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

}  // namespace

double pearson(std::span<const double> x, std::span<const double> y) {
  check_pairs("pearson", x, y);
  const double mean_x = mean(x), mean_y = mean(y);
  double xy = 0.0, xx = 0.0, yy = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  if (xx == 0.0 || yy == 0.0) return std::numeric_limits<double>::quiet_NaN();
  return std::clamp(xy / (std::sqrt(xx) * std::sqrt(yy)), -1.0, 1.0);
}

std::vector<double> mean_ranks(std::span<const double> x) {
  std::vector<int64_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return x[a] < x[b]; });
  std::vector<double> ranks(x.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && x[order[end]] == x[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) {
      ranks[order[i]] = 0.5 * static_cast<double>(begin + 1 + end);
    }
    begin = end;
  }
  return ranks;
}

double spearman(std::span<const double> x, std::span<const double> y) {
  check_pairs("spearman", x, y);
  return pearson(mean_ranks(x), mean_ranks(y));
}

double accuracy(std::span<const int64_t> predicted, std::span<const int64_t> expected) {
  HEDGEROW_CHECK(predicted.size() == expected.size() && !expected.empty(),
                 "accuracy: both sides must have the same number of labels, at least 1; got ",
                 predicted.size(), " and ", expected.size());
  int64_t same = 0;
  for (size_t i = 0; i < expected.size(); ++i) same += predicted[i] == expected[i];
  return static_cast<double>(same) / static_cast<double>(expected.size());
}

Histogram histogram(std::span<const double> values, double low, double high, int64_t num_bins) {
  HEDGEROW_CHECK(num_bins >= 1 && low < high, "histogram: needs a bin and low < high; got ",
                 num_bins, " bins of [", low, ", ", high, "]");
  Histogram result{.low = low, .high = high, .counts = std::vector<int64_t>(num_bins)};
  const double scale = static_cast<double>(num_bins) / (high - low);
  for (const double value : values) {
    if (!std::isfinite(value)) {
      ++result.not_finite;
    } else if (value < low) {
      ++result.below;
    } else if (value > high) {
      ++result.above;
    } else {
      const auto bin = static_cast<int64_t>((value - low) * scale);
      ++result.counts[std::min(bin, num_bins - 1)];
    }
  }
  return result;
}

}  // namespace hedgerow::metrics
