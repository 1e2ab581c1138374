// Tolerances are derived, not chosen: a sum of n products in float32 errs by about
// eps * sqrt(n) * (sum of magnitudes) / sqrt(n) .. eps * n * ..; we allow k * eps * sqrt(n) * scale
// with k = 4, scale the size of what is summed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace hedgerow::testing_support {

inline constexpr double kFloat32Eps = 0x1p-24;   // unit roundoff
inline constexpr double kBFloat16Eps = 0x1p-9;

// Error of a float32 sum of n terms whose magnitudes add up to `scale` or less per unit.
inline double sum_tolerance(int64_t n, double scale, double eps = kFloat32Eps, double k = 4.0) {
  return k * eps * std::sqrt(static_cast<double>(std::max<int64_t>(n, 1))) * std::max(scale, 1e-30);
}

}  // namespace hedgerow::testing_support
