// 100,000 rows of every kind, on every target.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "hedgerow/kernels/entmax.h"
#include "kernels/entmax/rows_test.h"
#include "testing/simd_guard.h"

namespace hedgerow::kernels {
namespace {

using entmax::testing_support::kAlphas;
using entmax::testing_support::Rows;
using entmax::testing_support::uniform;
using testing_support::SimdGuard;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::nanf("");

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
