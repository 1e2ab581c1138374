// Shared by the tests of the rows: an oracle in long double, rows with all their tensors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "hedgerow/kernels/entmax.h"
#include "testing/random.h"

namespace hedgerow::kernels::entmax::testing_support {

using hedgerow::testing_support::normal;
using hedgerow::testing_support::uniform;

// From a value well inside the support to one well outside, and the values where forms change.
inline const std::vector<double> kAlphas = {1.0, 1 + 1e-14, 1 + 1e-7, 1.0001, 1.01, 1.1,
                                            1.2, 1.25,      1.3,      1.5,    1.75, 1.9,
                                            2.0, 2.2,       2.5,      3.0,    5.0,  10.0};

// p of a row by bisection in long double: on lambda for alpha <= 1.8, on the smallest supported
// weight of a support found by trial above. Nothing is shared with the code under test.
inline std::vector<double> oracle(const std::vector<double>& z, double alpha) {
  using Long = long double;
  const Long e = static_cast<Long>(alpha) - 1;
  const double max = *std::max_element(z.begin(), z.end());
  std::vector<double> p(z.size());
  if (max == -std::numeric_limits<double>::infinity()) return p;
  const auto bisect = [](Long low, Long high, const std::function<Long(Long)>& excess) {
    for (int i = 0; i < 200 && low < high; i++) {  // excess falls from low to high
      const Long mid = low + (high - low) / 2;
      if (mid == low || mid == high) break;
      (excess(mid) > 0 ? low : high) = mid;
    }
    return low + (high - low) / 2;
  };
  if (alpha <= 1.8) {
    const auto weight = [&](double x, Long shift) -> Long {
      if (x == -std::numeric_limits<double>::infinity()) return 0;
      const Long w = static_cast<Long>(x) - max - shift;
      if (e == 0) return std::exp(w);
      return e * w > -1 ? std::exp(std::log1p(e * w) / e) : 0;
    };
    const Long shift = bisect(0, std::log(static_cast<Long>(z.size())) + 1, [&](Long s) {
      Long sum = -1;
      for (double x : z) sum += weight(x, s);
      return sum;
    });
    for (size_t i = 0; i < z.size(); i++) p[i] = static_cast<double>(weight(z[i], shift));
    return p;
  }
  std::vector<double> sorted = z;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  size_t support = 0;
  for (Long sum = 0; support < z.size() && sum < 1; support++) {
    if (support + 1 == z.size()) continue;
    sum = 0;
    for (size_t j = 0; j <= support; j++) {
      const Long d = static_cast<Long>(sorted[j]) - sorted[support + 1];
      sum += std::pow(e * d, 1 / e);
    }
  }
  const double z_min = sorted[support - 1];
  const auto weight = [&](double x, Long p_min) -> Long {
    if (x < z_min) return 0;
    const Long d = static_cast<Long>(x) - z_min;
    return d == 0 ? p_min : std::pow(e * d + std::pow(p_min, e), 1 / e);
  };
  const Long minus_p_min = bisect(-1, 0, [&](Long m) {
    Long sum = -1;
    for (double x : z) sum += weight(x, -m);
    return sum;
  });
  for (size_t i = 0; i < z.size(); i++) p[i] = static_cast<double>(weight(z[i], -minus_p_min));
  return p;
}

// Whether an entry lies so near the threshold that the gradient of either support is right: on both
// sides of it tau is known to rounding only.
inline bool near_threshold(const std::vector<double>& z, const std::vector<double>& p,
                           double alpha) {
  const double e = alpha - 1;
  if (e == 0) return false;
  size_t top = 0;
  for (size_t i = 0; i < z.size(); i++) {
    if (p[i] > p[top]) top = i;
  }
  for (size_t i = 0; i < z.size(); i++) {  // (e z_i - tau), relative to the largest entry
    const double t = e * (z[i] - z[top]) + std::pow(p[top], e);
    if (std::fabs(t) < 1e-5 * e) return true;
  }
  return false;
}

// Rows [rows][length], contiguous, one alpha each, in float32 or float64.
template <typename Real>
struct Rows {
  int64_t rows, length;
  std::vector<double> alpha;
  std::vector<Real> x, p, grad, dx;
  std::vector<double> grad_alpha;

  Rows(int64_t rows, int64_t length, double alpha_value)
      : rows(rows),
        length(length),
        alpha(rows, alpha_value),
        x(rows * length),
        p(rows * length, std::numeric_limits<Real>::quiet_NaN()),
        grad(rows * length),
        dx(rows * length, std::numeric_limits<Real>::quiet_NaN()),
        grad_alpha(rows, std::numeric_limits<double>::quiet_NaN()) {}

  EntmaxRows shape() const {
    EntmaxRows s;
    s.dtype = sizeof(Real) == 8 ? DType::kFloat64 : DType::kFloat32;
    s.sizes = {rows};
    s.length = length;
    s.alpha = alpha.data();
    s.num_alphas = rows;
    s.alpha_strides = {1};
    return s;
  }
  void forward() { entmax_forward(shape(), {x.data()}, {}, {p.data()}); }
  void backward() {
    entmax_backward(shape(), {p.data()}, {grad.data()}, {dx.data()}, grad_alpha.data());
  }
  std::vector<double> row(const std::vector<Real>& t, int64_t r) const {
    return {t.begin() + r * length, t.begin() + (r + 1) * length};
  }
};

// Lengths around vectors and runs of every target.
inline const std::vector<int64_t> kLengths = {
    1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 129, 255, 257, 1000, 1025};
inline const std::vector<double> kScales = {1e-3, 0.3, 1, 3, 100, 1e4};

// Row r of a mix: normal, with ties, a few far above the rest, partly excluded.
inline float sample(uint64_t seed, int64_t r, int64_t i, double scale) {
  double x = normal(seed + r, i);
  if (r % 4 == 1) x = std::round(2 * x) / 2;
  if (r % 4 == 2) x = i % 5 ? x : x + 3;
  if (r % 4 == 3 && uniform(seed + r, i) < 0.4) return -std::numeric_limits<float>::infinity();
  return static_cast<float>(scale * x);
}

template <typename Real>
Rows<Real> sampled(int64_t rows, int64_t length, double alpha, double scale, uint64_t seed) {
  Rows<Real> t(rows, length, alpha);
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t i = 0; i < length; i++) {
      t.x[r * length + i] = sample(seed, r, i, scale);
      t.grad[r * length + i] = static_cast<Real>(static_cast<float>(normal(seed + 100 + r, i)));
    }
  }
  return t;
}

inline double sum_of(const std::vector<double>& x) {
  double sum = 0;
  for (double v : x) sum += v;
  return sum;
}

}  // namespace hedgerow::kernels::entmax::testing_support
