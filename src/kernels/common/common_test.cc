// The vector core on every target: products of any size, exponentials, transposition, conversion.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common/common_test.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/common/gemm-inl.h"
#include "kernels/common/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {

void run_exp(int base, const float* x, float* y, int64_t n) {
  const FloatTag d;
  std::vector<float> in(round_up(n, float_lanes())), out(in.size());
  std::copy(x, x + n, in.begin());
  for (int64_t i = 0; i < n; i += float_lanes()) {
    const FloatVec v = hn::LoadU(d, &in[i]);
    hn::StoreU(base == 2 ? exp2_vec(v) : base == 3 ? exp_vec(v) : reciprocal_vec(v), d, &out[i]);
  }
  std::copy(out.begin(), out.begin() + n, y);
}

// c[m][n] += or = A B with A given as it lies or transposed; b and c are padded here.
void run_gemm(int64_t m, int64_t n, int64_t k, bool transposed, bool accumulate, const float* a,
              const float* b, float* c) {
  const int64_t wide = round_up(n, float_lanes());
  std::vector<float> bp(k * wide, 0.0f), cp(m * wide, 0.0f);
  for (int64_t i = 0; i < k; i++) std::copy(b + i * n, b + (i + 1) * n, &bp[i * wide]);
  for (int64_t i = 0; i < m; i++) std::copy(c + i * n, c + (i + 1) * n, &cp[i * wide]);
  gemm(m, wide / float_lanes(), k, a, transposed ? 1 : k, transposed ? m : 1, bp.data(), wide,
       cp.data(), wide, accumulate);
  for (int64_t i = 0; i < m; i++) std::copy(&cp[i * wide], &cp[i * wide] + n, c + i * n);
}

void run_transpose(int64_t rows, int64_t cols, const float* src, float* dst) {
  transpose(rows, cols, src, cols, dst, rows);
}

void run_reduce_sums(const float* x, float* sums, int64_t* lanes) {
  *lanes = float_lanes();
  HWY_ALIGN float copy[64 * 64];
  std::copy(x, x + *lanes * *lanes, copy);
  hn::StoreU(reduce_sums(copy), FloatTag(), sums);
}

bool run_finite(const float* x, int64_t n) { return all_finite(x, n); }

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "hedgerow/kernels/simd.h"
#include "testing/random.h"
#include "testing/simd_guard.h"
#include "testing/tolerance.h"

namespace hedgerow::kernels {
HWY_EXPORT(run_exp);
HWY_EXPORT(run_gemm);
HWY_EXPORT(run_transpose);
HWY_EXPORT(run_reduce_sums);
HWY_EXPORT(run_finite);
namespace {

using testing_support::random_values;
using testing_support::SimdGuard;

constexpr float kInf = std::numeric_limits<float>::infinity();

class EveryTarget : public ::testing::TestWithParam<std::string> {
 protected:
  SimdGuard guard_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Simd, EveryTarget, ::testing::ValuesIn(simd_targets()),
                         [](const auto& info) { return info.param; });

double ulps(float got, double want) {
  const float near = static_cast<float>(want);
  const float step = std::nextafter(std::fabs(near), kInf) - std::fabs(near);
  return std::fabs(got - want) / step;
}

TEST_P(EveryTarget, ExponentialsStayWithinFourUlp) {
  std::vector<float> x;
  for (float v = -160.0f; v < 130.0f; v += 0.00731f) x.push_back(v);
  std::vector<float> y(x.size());
  for (int base : {2, 3}) {
    HWY_DYNAMIC_DISPATCH(run_exp)(base, x.data(), y.data(), x.size());
    double worst = 0;
    for (size_t i = 0; i < x.size(); i++) {
      const double want =
          base == 2 ? std::exp2(static_cast<double>(x[i])) : std::exp(static_cast<double>(x[i]));
      if (want > std::numeric_limits<float>::max()) {
        EXPECT_EQ(y[i], kInf) << base << " at " << x[i];
      } else {
        worst = std::max(worst, ulps(y[i], want));
      }
    }
    EXPECT_LT(worst, 4.0) << base;
  }
}

TEST_P(EveryTarget, ExponentialsAtTheEnds) {
  const std::vector<float> x = {0.0f, -kInf, -1e30f, kInf, std::nanf(""), -0.0f, 1.0f};
  std::vector<float> y(x.size());
  for (int base : {2, 3}) {
    HWY_DYNAMIC_DISPATCH(run_exp)(base, x.data(), y.data(), x.size());
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_EQ(y[2], 0.0f);
    EXPECT_EQ(y[3], kInf);
    EXPECT_TRUE(std::isnan(y[4]));
    EXPECT_EQ(y[5], 1.0f);
  }
}

TEST_P(EveryTarget, ReciprocalIsWithinTwoUlp) {
  std::vector<float> x;
  for (float v = 1e-30f; v < 1e30f; v *= 1.0371f) x.insert(x.end(), {v, -v});
  std::vector<float> y(x.size());
  HWY_DYNAMIC_DISPATCH(run_exp)(0, x.data(), y.data(), x.size());
  for (size_t i = 0; i < x.size(); i++) EXPECT_LE(ulps(y[i], 1.0 / x[i]), 2.0) << x[i];
}

TEST_P(EveryTarget, ProductsOfAnySize) {
  for (int64_t m : {0, 1, 2, 3, 5, 6, 7, 11, 13, 64}) {
    for (int64_t n : {1, 3, 8, 15, 16, 17, 33, 63, 64, 80, 100}) {
      for (int64_t k : {0, 1, 5, 64}) {
        const std::vector<float> a = random_values(m * k, 1), b = random_values(k * n, 2);
        const std::vector<float> start = random_values(m * n, 3);
        for (bool transposed : {false, true}) {
          for (bool accumulate : {false, true}) {
            std::vector<float> c = start;
            HWY_DYNAMIC_DISPATCH(run_gemm)
            (m, n, k, transposed, accumulate, a.data(), b.data(), c.data());
            for (int64_t i = 0; i < m * n; i++) {
              double want = accumulate ? start[i] : 0.0, scale = std::fabs(want);
              for (int64_t t = 0; t < k; t++) {
                const double x = transposed ? a[t * m + i / n] : a[i / n * k + t];
                want += x * b[t * n + i % n];
                scale += std::fabs(x * b[t * n + i % n]);
              }
              ASSERT_NEAR(c[i], want, testing_support::sum_tolerance(k + 1, scale))
                  << m << "x" << n << "x" << k << " at " << i;
            }
          }
        }
      }
    }
  }
}

TEST_P(EveryTarget, TransposesAnySize) {
  for (int64_t rows : {0, 1, 3, 4, 5, 16, 33}) {
    for (int64_t cols : {1, 3, 4, 7, 64, 65}) {
      const std::vector<float> src = random_values(rows * cols, 4);
      std::vector<float> dst(rows * cols, std::nanf(""));
      HWY_DYNAMIC_DISPATCH(run_transpose)(rows, cols, src.data(), dst.data());
      for (int64_t i = 0; i < rows * cols; i++) ASSERT_EQ(dst[i % cols * rows + i / cols], src[i]);
    }
  }
}

TEST_P(EveryTarget, ManyHorizontalSums) {
  const std::vector<float> x = random_values(64 * 64, 5);
  std::vector<float> sums(64);
  int64_t lanes = 0;
  HWY_DYNAMIC_DISPATCH(run_reduce_sums)(x.data(), sums.data(), &lanes);
  for (int64_t i = 0; i < lanes; i++) {
    double want = 0;
    for (int64_t j = 0; j < lanes; j++) want += x[i * lanes + j];
    EXPECT_NEAR(sums[i], want, testing_support::sum_tolerance(lanes, 4.0 * lanes));
  }
}

TEST_P(EveryTarget, FiniteCheckSeesEveryPosition) {
  for (int64_t n : {1, 15, 16, 17, 40}) {
    std::vector<float> x = random_values(n, 6);
    EXPECT_TRUE(HWY_DYNAMIC_DISPATCH(run_finite)(x.data(), n));
    for (int64_t i = 0; i < n; i++) {
      for (float bad : {std::nanf(""), kInf, -kInf}) {
        const float keep = x[i];
        x[i] = bad;
        EXPECT_FALSE(HWY_DYNAMIC_DISPATCH(run_finite)(x.data(), n));
        x[i] = keep;
      }
    }
  }
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(bfloat16_bits(1.0f), 0x3f80);
  EXPECT_EQ(bfloat16_bits(1.00390625f), 0x3f80);  // halfway, even below
  EXPECT_EQ(bfloat16_bits(1.01171875f), 0x3f82);  // halfway, even above
  EXPECT_TRUE(std::isnan(bfloat16_value(bfloat16_bits(std::nanf("")))));
  EXPECT_EQ(bfloat16_value(bfloat16_bits(kInf)), kInf);
}

}  // namespace
}  // namespace hedgerow::kernels
#endif  // HWY_ONCE
