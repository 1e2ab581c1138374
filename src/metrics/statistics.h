// Correlations, accuracy and histograms of plain numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hedgerow::metrics {

// Pearson's correlation, in [-1, 1]. NaN when either side is constant (it has no correlation).
// Throws Error when the lengths differ or are below 2, or a value is not finite.
double pearson(std::span<const double> x, std::span<const double> y);

// Spearman's: Pearson's of the ranks, equal values sharing their mean rank.
double spearman(std::span<const double> x, std::span<const double> y);

// Ranks from 1; equal values share their mean rank.
std::vector<double> mean_ranks(std::span<const double> x);

// Share of equal entries. Throws Error when the lengths differ or are 0.
double accuracy(std::span<const int64_t> predicted, std::span<const int64_t> expected);

struct Histogram {
  double low = 0.0;
  double high = 0.0;
  std::vector<int64_t> counts;  // equal bins of [low, high]; the last includes `high`
  int64_t below = 0;            // values under `low`
  int64_t above = 0;            // values over `high`
  int64_t not_finite = 0;
};

// Throws Error when num_bins < 1 or low >= high.
Histogram histogram(std::span<const double> values, double low, double high, int64_t num_bins);

}  // namespace hedgerow::metrics
