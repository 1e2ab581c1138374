// The definition of the row transform: against bisection in long double, closed forms and
// differences.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "hedgerow/kernels/entmax.h"
#include "kernels/entmax/entmax_math.h"
#include "kernels/entmax/rows_test.h"

namespace hedgerow::kernels {
namespace {

using entmax::testing_support::kAlphas;
using entmax::testing_support::kScales;
using entmax::testing_support::near_threshold;
using entmax::testing_support::oracle;
using entmax::testing_support::Rows;
using entmax::testing_support::sampled;

TEST(EntmaxReference, EqualsBisectionInLongDouble) {
  for (double alpha : kAlphas) {
    for (double scale : kScales) {
      for (int64_t length : {1, 2, 3, 10, 65, 200}) {
        Rows<double> t = sampled<double>(4, length, alpha, scale, 7);
        t.forward();
        for (int64_t r = 0; r < t.rows; r++) {
          const std::vector<double> want = oracle(t.row(t.x, r), alpha), got = t.row(t.p, r);
          for (int64_t i = 0; i < length; i++) {
            ASSERT_NEAR(got[i], want[i], 1e-12) << alpha << " " << scale << " " << length;
          }
        }
      }
    }
  }
}

TEST(EntmaxReference, ThresholdFormsMeetAtTheirBorder) {
  const std::vector<double> z = {0.3, -1.0, 0.25, 0.1, -0.2, -3.0};
  std::vector<double> p(6), q(6);
  entmax::row_forward(z.data(), 6, 2.0, p.data());
  entmax::row_forward(z.data(), 6, 2.0 + 1e-12, q.data());
  for (int i = 0; i < 6; i++) EXPECT_NEAR(p[i], q[i], 1e-11);
}

TEST(EntmaxReference, ClosedForms) {
  // alpha = 2: tau = (sum over the support - 1) / its size; here all three are in.
  Rows<double> t(1, 4, 2.0);
  t.x = {1.0, 0.75, 0.5, -9.0};
  t.forward();
  const double tau = (1.0 + 0.75 + 0.5 - 1) / 3;
  for (int i = 0; i < 3; i++) EXPECT_NEAR(t.p[i], t.x[i] - tau, 1e-15);
  EXPECT_EQ(t.p[3], 0.0);
  // alpha = 1: softmax
  t.alpha = {1.0};
  t.forward();
  const double sum = std::exp(1.0) + std::exp(0.75) + std::exp(0.5) + std::exp(-9.0);
  for (int i = 0; i < 4; i++) EXPECT_NEAR(t.p[i], std::exp(t.x[i]) / sum, 1e-15);
  // two entries, alpha = 1.5: (d/2 + u)^2 + u^2 = 1, d their distance
  Rows<double> two(1, 2, 1.5);
  two.x = {0.8, 0.0};
  two.forward();
  const double u = (-0.4 + std::sqrt(2 - 0.16)) / 2;
  EXPECT_NEAR(two.p[1], u * u, 1e-15);
}

// Derivatives of the definition by central differences of itself, in z and alpha.
TEST(EntmaxReference, GradientsAreDerivatives) {
  int compared = 0;
  for (double alpha : {1.3, 1.5, 1.8, 2.0, 2.3, 3.0, 5.0}) {
    const int64_t n = 7;
    Rows<double> t = sampled<double>(3, n, alpha, 0.4, 11);
    t.forward();
    t.backward();
    const double step = 1e-6;
    const auto loss = [&](int64_t r) {
      Rows<double> u = t;
      u.forward();
      double sum = 0;
      for (int64_t i = 0; i < n; i++) sum += u.p[r * n + i] * t.grad[r * n + i];
      return sum;
    };
    for (int64_t r = 0; r < t.rows; r++) {
      if (near_threshold(t.row(t.x, r), t.row(t.p, r), alpha)) continue;
      compared++;
      for (int64_t i = 0; i < n; i++) {
        const double at = t.x[r * n + i];
        t.x[r * n + i] = at + step;
        const double up = loss(r);
        t.x[r * n + i] = at - step;
        const double down = loss(r);
        t.x[r * n + i] = at;
        EXPECT_NEAR(t.dx[r * n + i], (up - down) / (2 * step), 1e-7) << alpha;
      }
      t.alpha[r] = alpha + step;
      const double up = loss(r);
      t.alpha[r] = alpha - step;
      const double down = loss(r);
      t.alpha[r] = alpha;
      EXPECT_NEAR(t.grad_alpha[r], (up - down) / (2 * step), 1e-7) << alpha;
    }
  }
  EXPECT_GE(compared, 19);
}

// At alpha = 1 and just above it the gradient for alpha is the limit, (p/2)(sum p log^2 p - log^2
// p).
TEST(EntmaxReference, AlphaGradientIsContinuousAtOne) {
  const int64_t n = 9;
  Rows<double> one = sampled<double>(1, n, 1.0, 1.0, 3);
  one.forward();
  one.backward();
  double square = 0, want = 0;
  for (double p : one.p) square += p * std::log(p) * std::log(p);
  for (int64_t i = 0; i < n; i++) {
    const double log_p = std::log(one.p[i]);
    want += one.grad[i] * one.p[i] / 2 * (square - log_p * log_p);
  }
  EXPECT_NEAR(one.grad_alpha[0], want, 1e-13);
  for (double e : {1e-12, 1e-9, 1e-7, 1e-5}) {
    Rows<double> near = one;
    near.alpha = {1 + e};
    near.forward();
    near.backward();
    EXPECT_NEAR(near.grad_alpha[0], want, 100 * e + 1e-12) << e;
  }
}

}  // namespace
}  // namespace hedgerow::kernels
