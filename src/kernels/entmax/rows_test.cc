// The row transform and its gradients against the definition, on every target.
#include "kernels/entmax/rows_test.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "hedgerow/error.h"
#include "hedgerow/kernels/entmax.h"
#include "kernels/common/bfloat16.h"
#include "kernels/entmax/entmax_math.h"
#include "testing/simd_guard.h"
#include "testing/tolerance.h"

namespace hedgerow::kernels {
namespace {

using entmax::testing_support::kAlphas;
using entmax::testing_support::near_threshold;
using entmax::testing_support::normal;
using entmax::testing_support::oracle;
using entmax::testing_support::sum_of;
using entmax::testing_support::uniform;
using testing_support::SimdGuard;
using testing_support::ThreadGuard;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::nanf("");

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
        p(rows * length, static_cast<Real>(kNaN)),
        grad(rows * length),
        dx(rows * length, static_cast<Real>(kNaN)),
        grad_alpha(rows, kNaN) {}

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
const std::vector<int64_t> kLengths = {1,  2,  3,  4,  5,   7,   8,   9,   15,  16,   17,  31,
                                       33, 63, 64, 65, 100, 127, 129, 255, 257, 1000, 1025};
const std::vector<double> kScales = {1e-3, 0.3, 1, 3, 100, 1e4};

// Row r of a mix: normal, with ties, a few far above the rest, partly excluded.
float sample(uint64_t seed, int64_t r, int64_t i, double scale) {
  double x = normal(seed + r, i);
  if (r % 4 == 1) x = std::round(2 * x) / 2;
  if (r % 4 == 2) x = i % 5 ? x : x + 3;
  if (r % 4 == 3 && uniform(seed + r, i) < 0.4) return -kInf;
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

// 2e-6 of the definition, sums within 1e-6, larger entries get no smaller weights.
TEST(Entmax, ForwardEqualsTheDefinitionOnEveryTarget) {
  for (const std::string& target : simd_targets()) {
    SimdGuard guard(target);
    for (double alpha : kAlphas) {
      for (double scale : kScales) {
        for (int64_t length : kLengths) {
          Rows<float> t = sampled<float>(4, length, alpha, scale, length);
          t.forward();
          for (int64_t r = 0; r < t.rows; r++) {
            const std::vector<double> z = t.row(t.x, r), got = t.row(t.p, r);
            std::vector<double> want(length);
            const auto row = entmax::row_forward(z.data(), length, alpha, want.data());
            double error = 0;
            for (int64_t i = 0; i < length; i++) {
              error = std::max(error, std::fabs(got[i] - want[i]));
              if (z[i] == -kInf) {
                ASSERT_EQ(got[i], 0.0);
              }
            }
            ASSERT_LE(error, 2e-6) << target << " alpha " << alpha << " scale " << scale
                                   << " length " << length << " row " << r;
            const double sum = row.max == -kInf ? 0.0 : 1.0;
            ASSERT_NEAR(sum_of(got), sum, 1e-6)
                << target << " alpha " << alpha << " scale " << scale << " length " << length;
            std::vector<std::pair<double, double>> pairs(length);
            for (int64_t i = 0; i < length; i++) pairs[i] = {z[i], got[i]};
            std::sort(pairs.begin(), pairs.end());
            for (int64_t i = 1; i < length; i++) {
              ASSERT_GE(pairs[i].second, pairs[i - 1].second) << target << " " << alpha;
            }
          }
        }
      }
    }
  }
}

// Gradients from the kernel's own p against those of the definition at the same x.
TEST(Entmax, GradientsEqualTheDefinitionOnEveryTarget) {
  int64_t compared = 0, skipped = 0;
  for (const std::string& target : simd_targets()) {
    SimdGuard guard(target);
    for (double alpha : kAlphas) {
      for (double scale : {0.05, 1.0, 4.0}) {
        for (int64_t length : kLengths) {
          Rows<float> t = sampled<float>(4, length, alpha, scale, 50 + length);
          t.forward();
          t.backward();
          for (int64_t r = 0; r < t.rows; r++) {
            const std::vector<double> z = t.row(t.x, r), g = t.row(t.grad, r), got = t.row(t.dx, r);
            std::vector<double> p(length), dz(length);
            entmax::row_forward(z.data(), length, alpha, p.data());
            const double dalpha =
                entmax::row_backward(p.data(), g.data(), length, alpha, dz.data());
            if (near_threshold(z, p, alpha)) {
              skipped++;
              continue;
            }
            compared++;
            // relative to what is added up: s |g|, and r |g| for alpha
            double size = 0, terms = 0, top = 0;
            for (int64_t i = 0; i < length; i++) {
              size = std::max(size, std::fabs(dz[i]));
              if (p[i] > 0) terms += std::fabs(entmax::alpha_term(std::log(p[i]), alpha - 1));
              top = std::max(top, std::fabs(g[i]));
            }
            for (int64_t i = 0; i < length; i++) {
              ASSERT_NEAR(got[i], dz[i], 1e-4 * size + 1e-12)
                  << target << " alpha " << alpha << " scale " << scale << " length " << length;
            }
            ASSERT_NEAR(t.grad_alpha[r], dalpha, 1e-4 * std::fabs(dalpha) + 2e-6 * terms * top)
                << target << " alpha " << alpha << " scale " << scale << " length " << length;
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 4 * skipped);
}

// One entry has almost all the weight: what is left of its gradient is still right to 1e-4.
TEST(Entmax, PeakedRowsKeepSmallGradients) {
  for (const std::string& target : simd_targets()) {
    SimdGuard guard(target);
    Rows<float> t(1, 40, 1.0);
    for (int64_t i = 0; i < 40; i++) {
      t.x[i] = i == 17 ? 12.0f : static_cast<float>(0.1 * normal(5, i));
      t.grad[i] = static_cast<float>(3 + normal(6, i));
    }
    t.forward();
    t.backward();
    const std::vector<double> z = t.row(t.x, 0), g = t.row(t.grad, 0);
    std::vector<double> p(40), dz(40);
    entmax::row_forward(z.data(), 40, 1.0, p.data());
    entmax::row_backward(p.data(), g.data(), 40, 1.0, dz.data());
    for (int i = 0; i < 40; i++) EXPECT_NEAR(t.dx[i], dz[i], 1e-4 * std::fabs(dz[i])) << target;
  }
}

// Long equal and nearly equal rows: a threshold in one float would move the sum by 1e-4.
TEST(Entmax, LongFlatRowsSumToOne) {
  for (const std::string& target : simd_targets()) {
    SimdGuard guard(target);
    for (double alpha : {1.0, 1 + 1e-7, 1.001, 1.1, 1.2, 1.3, 1.5, 1.8, 1.99, 2.0, 2.5}) {
      for (double spread : {0.0, 1e-4, 0.3}) {
        Rows<float> t(1, 20000, alpha);
        for (int64_t i = 0; i < t.length; i++) {
          t.x[i] = 5 + static_cast<float>(spread * uniform(9, i));
        }
        t.x[77] += static_cast<float>(spread);
        t.forward();
        EXPECT_NEAR(sum_of(t.row(t.p, 0)), 1.0, 1e-6) << target << " " << alpha << " " << spread;
      }
    }
  }
}

// One large entry and thousands of small ones around the threshold, which enter and leave the
// support within a step of the search.
TEST(Entmax, ClustersAtTheThreshold) {
  for (const std::string& target : simd_targets()) {
    SimdGuard guard(target);
    for (double alpha : {1.02, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 1.97, 2.0, 2.4}) {
      const double e = alpha - 1;
      Rows<float> t(40, 3000, alpha);
      for (int64_t r = 0; r < t.rows; r++) {
        const double center = -uniform(1, r) / e, width = std::pow(10.0, -4 * uniform(2, r)) / e;
        for (int64_t i = 1; i < t.length; i++) {
          const double x = center + width * (uniform(r, i) - 0.5);
          t.x[r * t.length + i] = static_cast<float>(std::min(0.0, x));
        }
      }
      t.forward();
      for (int64_t r = 0; r < t.rows; r++) {
        const std::vector<double> z = t.row(t.x, r), got = t.row(t.p, r);
        std::vector<double> want(t.length);
        entmax::row_forward(z.data(), t.length, alpha, want.data());
        ASSERT_NEAR(sum_of(got), 1.0, 1e-6) << target << " " << alpha << " row " << r;
        for (int64_t i = 0; i < t.length; i++) {
          ASSERT_NEAR(got[i], want[i], 2e-6) << target << " " << alpha << " row " << r;
        }
      }
    }
  }
}

TEST(Entmax, RandomRowsOfEveryKindStayDistributions) {
  for (const std::string& target : simd_targets()) {
    SimdGuard guard(target);
    const int64_t groups = 5000, rows = 20;  // 100,000 rows
    for (int64_t k = 0; k < groups; k++) {
      const int64_t length = static_cast<int64_t>(std::exp(uniform(1, k) * std::log(5000.0)));
      Rows<float> t(rows, length, 1.0);
      std::vector<uint8_t> mask(rows * length), any(rows);
      for (int64_t r = 0; r < rows; r++) {
        const int64_t id = k * rows + r;
        const double scale = std::pow(10.0, 80 * uniform(2, id) - 42);  // 1e-42 to 1e38
        const double keep = uniform(4, id) < 0.3 ? 1.0 : uniform(5, id);
        t.alpha[r] = uniform(3, id) < 0.3 ? kAlphas[id % kAlphas.size()] : 1 + uniform(6, id);
        if (id % 16 == 0) t.alpha[r] = 1 + 20 * uniform(6, id);
        uint64_t state = static_cast<uint64_t>(id) * 0x9e3779b97f4a7c15u + 1;
        for (int64_t i = 0; i < length; i++) {
          state = state * 6364136223846793005u + 1442695040888963407u;
          const double u = static_cast<double>(state >> 11) * 0x1p-53;
          const uint32_t v = static_cast<uint32_t>(state >> 20) & 1023;
          float x = static_cast<float>(scale * 3.4 * (2 * u - 1));
          if (v < 20 && id % 3 == 0) x = -kInf;
          if (v == 30 && id % 37 == 0) x = kInf;
          if (v > 1000 && id % 5 == 0) x = std::numeric_limits<float>::lowest();
          if (id % 7 == 0) x = std::round(x);
          t.x[r * length + i] = x;
          t.grad[r * length + i] = static_cast<float>(u - 0.5);
          mask[r * length + i] = (v * 1.0 / 1024 < keep) ? 1 + (v & 7) : 0;
          if (!mask[r * length + i] && v % 2) t.x[r * length + i] = kNaN;
          any[r] |= mask[r * length + i] && x != -kInf;
        }
      }
      entmax_forward(t.shape(), {t.x.data()}, {mask.data()}, {t.p.data()});
      t.backward();
      for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t i = 0; i < length; i++) {
          const float p = t.p[r * length + i];
          sum += p;
          ASSERT_TRUE(p >= 0 && p <= 1.00001f) << p;
          ASSERT_TRUE(std::isfinite(t.dx[r * length + i]));
          ASSERT_TRUE(mask[r * length + i] || (p == 0 && t.dx[r * length + i] == 0));
        }
        ASSERT_NEAR(sum, any[r] ? 1.0 : 0.0, 1e-5)
            << target << " group " << k << " row " << r << " alpha " << t.alpha[r];
        ASSERT_TRUE(std::isfinite(t.grad_alpha[r]));
      }
    }
  }
}

}  // namespace
}  // namespace hedgerow::kernels
