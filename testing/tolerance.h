// Tolerances are derived, not chosen: rounding errors of a float32 sum of n terms behave like a
// random walk of n steps of eps * scale, scale being the size of the partial sums; k = 4 standard
// deviations are allowed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace hedgerow::testing_support {

inline constexpr double kFloat32Eps = 0x1p-24;  // unit roundoff
inline constexpr double kBFloat16Eps = 0x1p-9;

// k * eps * sqrt(n) * scale.
inline double sum_tolerance(int64_t n, double scale, double eps = kFloat32Eps, double k = 4.0) {
  return k * eps * std::sqrt(static_cast<double>(std::max<int64_t>(n, 1))) * std::max(scale, 1e-30);
}

}  // namespace hedgerow::testing_support
