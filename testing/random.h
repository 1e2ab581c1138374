// Reproducible test data, the same on every machine.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/counter_rng.h"

namespace hedgerow::testing_support {

// Value i of stream `seed`, uniform in [0, 1).
inline double uniform(uint64_t seed, int64_t i) {
  return static_cast<double>(mix64(mix64(seed) ^ static_cast<uint64_t>(i)) >> 11) * 0x1p-53;
}

// Standard normal (Box-Muller).
inline double normal(uint64_t seed, int64_t i) {
  const double u = 1.0 - uniform(seed, 2 * i), v = uniform(seed, 2 * i + 1);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
}

inline std::vector<float> random_values(int64_t n, uint64_t seed, double scale = 1.0) {
  std::vector<float> x(n);
  for (int64_t i = 0; i < n; i++) x[i] = static_cast<float>(scale * normal(seed, i));
  return x;
}

}  // namespace hedgerow::testing_support
