// The row transform and its gradients against the definition, on every target.
#include "kernels/entmax/rows_test.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "hedgerow/kernels/entmax.h"
#include "kernels/entmax/entmax_math.h"
#include "testing/simd_guard.h"

namespace hedgerow::kernels {
namespace {

using entmax::testing_support::kAlphas;
using entmax::testing_support::kLengths;
using entmax::testing_support::kScales;
using entmax::testing_support::near_threshold;
using entmax::testing_support::normal;
using entmax::testing_support::Rows;
using entmax::testing_support::sampled;
using entmax::testing_support::sum_of;
using entmax::testing_support::uniform;
using testing_support::SimdGuard;

constexpr float kInf = std::numeric_limits<float>::infinity();

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

}  // namespace
}  // namespace hedgerow::kernels
