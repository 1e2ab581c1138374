// The scalar mathematics of alpha-entmax, in forms that stay accurate for every alpha >= 1. float
// or double; e = alpha - 1 everywhere. Written to be read: references and rare paths use it.
//
// tau is the wrong unknown at both ends, so two others are used:
//   e <= 1: lambda with p_i = exp(log1p(e (z_i - lambda)) / e); tau = e lambda - 1; at e = 0 lambda
//           is the log-sum-exp. Newton's iteration on (sum p)^e is monotone there, since the norm
//           with exponent 1/e >= 1 is convex.
//   e > 1:  p_min, the weight of the smallest supported entry z_min, with
//           p_i = (e (z_i - z_min) + p_min^e)^(1/e). Newton's iteration on sum p is monotone there.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "hedgerow/error.h"

namespace hedgerow::kernels::entmax {

// Largest e of the lambda form.
inline constexpr double kLambdaForm = 1.0;
// Newton's iterations need about ten steps; the bound only ends rows that hold NaN.
inline constexpr int kMaxSteps = 200;

inline void check_alpha(double alpha) {
  HEDGEROW_CHECK(alpha >= 1.0 && std::isfinite(alpha),
                 "entmax: alpha must be finite and at least 1; got ", alpha);
}

// a - b, and 0 for equal infinities.
template <typename Real>
Real difference(Real a, Real b) {
  return a == b ? Real(0) : a - b;
}

// p of w = z - lambda, for e <= 1.
template <typename Real>
Real weight(Real w, Real e) {
  if (e == 0) return std::exp(w);
  const Real y = e * w;
  return y > -1 ? std::exp(std::log1p(y) / e) : Real(0);
}

// The threshold of one row: what turns its entries into weights.
template <typename Real>
struct Threshold {
  static constexpr Real kInf = std::numeric_limits<Real>::infinity();
  Real e = 0;
  Real max = -kInf;    // largest entry; -inf: the row has none, and every weight is 0
  Real shift = 0;      // e <= 1: lambda - max, from 0 to (1 - n^-e) / e
  Real z_min = -kInf;  // e > 1: smallest supported entry, and the logarithm of its weight
  Real log_p_min = 0;

  // Of an entry of the row.
  Real weight(Real z) const {
    if (max == -kInf || z == -kInf) return 0;
    if (e <= Real(kLambdaForm)) return entmax::weight(difference(z, max) - shift, e);
    if (z < z_min) return 0;
    return std::exp(log_weight_above(difference(z, z_min)));
  }

  // log p of an entry d >= 0 above z_min, for e > 1.
  Real log_weight_above(Real d) const {
    if (d == 0) return log_p_min;
    const Real a = std::log(e * d), b = e * log_p_min;
    return (std::max(a, b) + std::log1p(std::exp(std::min(a, b) - std::max(a, b)))) / e;
  }

  // w = z - lambda; p = exp(log1p(e w) / e) where it is above -1/e.
  Real above_lambda(Real z) const {
    if (e <= Real(kLambdaForm)) return difference(z, max) - shift;
    return difference(z, z_min) + std::expm1(e * log_p_min) / e;
  }

  // lambda in the units of the row; above_lambda is more accurate where entries are large.
  Real lambda() const {
    return e <= Real(kLambdaForm) ? max + shift : z_min - std::expm1(e * log_p_min) / e;
  }
};

// shift for e <= 1 of n entries whose largest is `max`; entries of -inf do not count.
template <typename Real>
Real solve_shift(const Real* z, int64_t n, Real max, Real e) {
  const Real eps = std::numeric_limits<Real>::epsilon();
  Real shift = 0;  // sum p >= 1 here
  for (int step = 0; step < kMaxSteps; step++) {
    Real sum = 0, slope = 0;  // sum p, and sum s = -d(sum p)/d(lambda), s = p^(1-e)
    for (int64_t i = 0; i < n; i++) {
      const Real w = difference(z[i], max) - shift, p = weight(w, e);
      if (p == 0) continue;
      sum += p;
      slope += p / (1 + e * w);
    }
    const Real gap = e == 0 ? std::log(sum) : -std::expm1(-e * std::log(sum)) / e;
    const Real move = gap * sum / slope;
    if (!(std::fabs(move) > 2 * eps * shift)) break;
    shift = std::max(shift + move, Real(0));
    if (step > 0 && move < 0) break;  // from above only by rounding
  }
  return shift;
}

// For e > 1: entries sorted from the largest down, shortened to the support.
template <typename Real>
void keep_support(std::vector<Real>& z, Real e) {
  // Entry k is supported when the entries above it sum to less than 1 at p_k = 0.
  const auto supported = [&](int64_t k) {
    Real sum = 0;
    for (int64_t j = 0; j < k && sum < 1; j++) {
      sum += std::pow(e * difference(z[j], z[k]), 1 / e);
    }
    return sum < 1;
  };
  int64_t yes = 0, no = static_cast<int64_t>(z.size());
  while (no - yes > 1) {
    const int64_t k = yes + (no - yes) / 2;
    (supported(k) ? yes : no) = k;
  }
  z.resize(yes + 1);
}

// log p_min of a sorted support, e > 1. p_i is convex in p_min and increases by at most as much, so
// that Newton's iteration from 1/n, where sum p >= 1, comes down to the root.
template <typename Real>
Real solve_log_p_min(const std::vector<Real>& z, Real e) {
  const Real eps = std::numeric_limits<Real>::epsilon(), tiny = std::numeric_limits<Real>::min();
  Threshold<Real> row{e};
  Real p_min = Real(1) / z.size();
  for (int step = 0; step < kMaxSteps; step++) {
    row.log_p_min = std::log(p_min);
    Real sum = 0, slope = 0;
    for (const Real x : z) {
      const Real log_p = row.log_weight_above(difference(x, z.back()));
      sum += std::exp(log_p);
      slope += std::exp((e - 1) * (row.log_p_min - log_p));
    }
    const Real move = (sum - 1) / slope, next = std::max(p_min - move, tiny);
    if (!(std::fabs(next - p_min) > eps * p_min)) break;
    p_min = next;
    if (step > 0 && move < 0) break;  // from below only by rounding
  }
  return std::log(p_min);
}

// The threshold of n entries; -inf is no entry. `scratch` is used for e > 1.
template <typename Real>
Threshold<Real> solve(const Real* z, int64_t n, Real e, std::vector<Real>& scratch) {
  Threshold<Real> row{e};
  for (int64_t i = 0; i < n; i++) row.max = std::max(row.max, z[i]);
  if (row.max == -Threshold<Real>::kInf) return row;
  if (e <= Real(kLambdaForm)) {
    row.shift = solve_shift(z, n, row.max, e);
    return row;
  }
  scratch.clear();
  for (int64_t i = 0; i < n; i++) {
    if (e * difference(z[i], row.max) > -1) scratch.push_back(z[i]);  // p <= 1 for the largest
  }
  std::sort(scratch.begin(), scratch.end(), std::greater<Real>());
  keep_support(scratch, e);
  row.z_min = scratch.back();
  row.log_p_min = solve_log_p_min(scratch, e);
  return row;
}

// p of a row of scores z (-inf where excluded); returns the threshold.
template <typename Real>
Threshold<Real> row_forward(const Real* z, int64_t n, Real alpha, Real* p) {
  std::vector<Real> scratch;
  const Threshold<Real> row = solve(z, n, alpha - 1, scratch);
  for (int64_t i = 0; i < n; i++) p[i] = row.weight(z[i]);
  return row;
}

// (e^y - 1 - y) / y^2 for y >= 0.
template <typename Real>
Real expm1_second(Real y) {
  if (y > Real(0.5)) return (std::expm1(y) - y) / (y * y);
  Real sum = 0, factorial = Real(20922789888000.0);  // 16!
  for (int k = 16; k >= 2; k--) {
    sum = sum * y + 1 / factorial;
    factorial /= k;
  }
  return sum;
}

// With s = p^(1-e) and r of this function, g any vector, g~ = sum s g / sum s:
//   sum_i g_i dp_i/dalpha = sum_i r_i (g_i - g~).
// e <= 1: r = p phi, phi = -(e^y - 1 - y) / e^2 with y = -e log p: the stable form, for
//         x/(1+x) - log1p(x) at 1 + x = e^-y is 1 - e^y + y. r = -p log^2(p) / 2 at e = 0.
// e > 1:  r = p (1 + y) / e^2, whose difference s / e^2 from the former cancels in the sum.
template <typename Real>
Real alpha_term(Real log_p, Real e) {
  const Real p = std::exp(log_p), y = -e * log_p;
  if (e > Real(kLambdaForm)) return p * (1 + y) / (e * e);
  if (y <= Real(0.5)) return -p * log_p * log_p * expm1_second(y);
  return (p * (1 + y) - std::exp((1 - e) * log_p)) / (e * e);
}

// The part of one weight in H(p) = (1 - sum p^alpha) / (alpha (alpha-1)), and its derivative for
// alpha at constant p. With u = (p^e - 1) / e, H = -sum p u / (1 + e); u = log p at e = 0.
template <typename Real>
struct EntropyTerm {
  Real value, dalpha;
};
template <typename Real>
EntropyTerm<Real> entropy_term(Real p, Real e) {
  if (!(p > 0)) return {0, 0};
  const Real log_p = std::log(p), x = e * log_p;
  const Real u = e == 0 ? log_p : std::expm1(x) / e;
  // du/de = log^2(p) (x e^x - e^x + 1) / x^2; sum_k (k+1)/(k+2)! x^k near 0
  Real du = 0;
  if (x < Real(-0.5)) {
    du = (x * std::exp(x) - std::expm1(x)) / (e * e);
  } else {
    Real factorial = Real(20922789888000.0);  // 16!
    for (int k = 14; k >= 0; k--) {
      du = du * x + (k + 1) / factorial;
      factorial /= k + 2;
    }
    du *= log_p * log_p;
  }
  return {-p * u / (1 + e), p * (u / (1 + e) - du) / (1 + e)};
}

// dz of a row from its weights p and grad_p = g, and the row's part of the gradient for alpha:
//   dz_i = s_i (g_i - sum s g / sum s) on the support, 0 off it.
// g counts from that of the entry with the largest s, whose share of the sum can be 1 but for
// rounding: what is left of it is then still accurate. dz may be nullptr; it saturates at the
// largest finite number, since s can be of any size for e > 1.
template <typename Real>
Real row_backward(const Real* p, const Real* g, int64_t n, Real alpha, Real* dz) {
  const Real e = alpha - 1, limit = std::numeric_limits<Real>::max();
  int64_t top = -1;
  for (int64_t i = 0; i < n; i++) {
    if (p[i] > 0 && (top < 0 || (e > 1 ? p[i] < p[top] : p[i] > p[top]))) top = i;
  }
  if (top < 0) {
    for (int64_t i = 0; i < n && dz; i++) dz[i] = 0;
    return 0;
  }
  Real share = 0, moment = 0;  // sums of s and s g, in units of the largest s
  for (int64_t i = 0; i < n; i++) {
    if (!(p[i] > 0)) continue;
    const Real s = std::exp((1 - e) * (std::log(p[i]) - std::log(p[top])));
    share += s;
    moment += s * (g[i] - g[top]);
  }
  const Real mean = moment / share;
  Real dalpha = 0, others = 0;
  for (int64_t i = 0; i < n; i++) {
    if (dz) dz[i] = 0;
    if (!(p[i] > 0)) continue;
    const Real x = g[i] - g[top] - mean, log_p = std::log(p[i]);
    dalpha += alpha_term(log_p, e) * x;
    if (!dz || i == top || x == 0) continue;
    const Real size = std::exp((1 - e) * log_p + std::log(std::fabs(x)));
    dz[i] = std::copysign(std::min(size, limit), x);
    others += dz[i];
  }
  if (dz) dz[top] = std::clamp(-others, -limit, limit);  // dz sums to 0
  return dalpha;
}

}  // namespace hedgerow::kernels::entmax
