// Row transform: strides, masks, types, threads, errors; the top-k variant; the loss.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "hedgerow/error.h"
#include "hedgerow/kernels/entmax.h"
#include "kernels/common/bfloat16.h"
#include "kernels/entmax/entmax_math.h"
#include "kernels/entmax/rows_test.h"
#include "testing/simd_guard.h"

namespace hedgerow::kernels {
namespace {

using entmax::testing_support::normal;
using testing_support::SimdGuard;
using testing_support::ThreadGuard;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::nanf("");

std::vector<float> normals(int64_t n, uint64_t seed) {
  std::vector<float> x(n);
  for (int64_t i = 0; i < n; i++) x[i] = static_cast<float>(normal(seed, i));
  return x;
}

// [A, N, B] with rows along N, one alpha per b, a mask [A, N, 1].
struct Middle {
  int64_t a = 3, n = 37, b = 21;
  std::vector<double> alpha;
  std::vector<uint8_t> mask;
  EntmaxRows rows;
  RowMask keep;

  explicit Middle(DType dtype = DType::kFloat32) {
    for (int64_t i = 0; i < b; i++) alpha.push_back(1 + 0.1 * i);  // 1 to 3
    for (int64_t i = 0; i < a * n; i++) mask.push_back(i % 5 != 2);
    rows.dtype = dtype;
    rows.sizes = {a, b};
    rows.length = n;
    rows.alpha = alpha.data();
    rows.num_alphas = b;
    rows.alpha_strides = {0, 1};
    keep = {mask.data(), {n, 0}, 1};
  }
  int64_t size() const { return a * n * b; }
  std::vector<int64_t> strides() const { return {n * b, 1}; }
  int64_t at(int64_t i, int64_t k, int64_t j) const { return (i * n + k) * b + j; }
};

// The same entries as contiguous rows, masked by -inf: results must have the same bits.
TEST(EntmaxLayout, MiddleDimensionsAndMasksEqualContiguousRows) {
  const Middle m;
  const std::vector<float> x = normals(m.size(), 1), g = normals(m.size(), 2);
  std::vector<float> p(m.size(), kNaN), dx(m.size(), kNaN);
  std::vector<double> grad_alpha(m.b, kNaN), want_alpha(m.b, 0.0);
  entmax_forward(m.rows, {x.data(), m.strides(), m.b}, m.keep, {p.data(), m.strides(), m.b});
  entmax_backward(m.rows, {p.data(), m.strides(), m.b}, {g.data(), m.strides(), m.b},
                  {dx.data(), m.strides(), m.b}, grad_alpha.data());
  for (int64_t i = 0; i < m.a; i++) {
    for (int64_t j = 0; j < m.b; j++) {
      std::vector<float> z(m.n), q(m.n), gr(m.n), dz(m.n);
      for (int64_t k = 0; k < m.n; k++) {
        z[k] = m.mask[i * m.n + k] ? x[m.at(i, k, j)] : -kInf;
        gr[k] = g[m.at(i, k, j)];
      }
      EntmaxRows one;
      one.length = m.n;
      one.alpha = &m.alpha[j];
      double dalpha = 0;
      entmax_forward(one, {z.data()}, {}, {q.data()});
      entmax_backward(one, {q.data()}, {gr.data()}, {dz.data()}, &dalpha);
      want_alpha[j] += dalpha;
      for (int64_t k = 0; k < m.n; k++) {
        ASSERT_EQ(p[m.at(i, k, j)], q[k]);
        ASSERT_EQ(dx[m.at(i, k, j)], dz[k]);
      }
    }
  }
  EXPECT_EQ(grad_alpha, want_alpha);
}

TEST(EntmaxLayout, BFloat16RoundsTheResultsOnly) {
  for (const std::string& target : simd_targets()) {
    SimdGuard guard(target);
    const Middle m(DType::kBFloat16);
    const std::vector<float> x = normals(m.size(), 1), g = normals(m.size(), 2);
    std::vector<uint16_t> xb(m.size()), gb(m.size()), p(m.size()), dx(m.size()), want(m.size());
    for (int64_t i = 0; i < m.size(); i++) {
      xb[i] = bfloat16_bits(x[i]);
      gb[i] = bfloat16_bits(g[i]);
    }
    std::vector<double> grad_alpha(m.b), want_alpha(m.b);
    entmax_forward(m.rows, {xb.data(), m.strides(), m.b}, m.keep, {p.data(), m.strides(), m.b});
    entmax_forward_reference(m.rows, {xb.data(), m.strides(), m.b}, m.keep,
                             {want.data(), m.strides(), m.b});
    for (int64_t i = 0; i < m.size(); i++) {
      const double w = bfloat16_value(want[i]);
      ASSERT_NEAR(bfloat16_value(p[i]), w, 2e-6 + 0x1p-8 * w) << target;  // one rounding apart
    }
    entmax_backward(m.rows, {p.data(), m.strides(), m.b}, {gb.data(), m.strides(), m.b},
                    {dx.data(), m.strides(), m.b}, grad_alpha.data());
    entmax_backward_reference(m.rows, {p.data(), m.strides(), m.b}, {gb.data(), m.strides(), m.b},
                              {want.data(), m.strides(), m.b}, want_alpha.data());
    for (int64_t i = 0; i < m.size(); i++) {
      const double w = bfloat16_value(want[i]);
      ASSERT_NEAR(bfloat16_value(dx[i]), w, 1e-5 + 0x1p-8 * std::fabs(w)) << target;
    }
    for (int64_t j = 0; j < m.b; j++) EXPECT_NEAR(grad_alpha[j], want_alpha[j], 1e-4) << target;
  }
}

TEST(EntmaxLayout, ThreadsChangeNothing) {
  const int64_t n = 300, rows = 700;
  const std::vector<float> x = normals(n * rows, 3), g = normals(n * rows, 4);
  const double alpha = 1.3;
  EntmaxRows shape;
  shape.sizes = {rows};
  shape.length = n;
  shape.alpha = &alpha;
  std::vector<float> p1, dx1;
  double dalpha1 = 0;
  for (int64_t threads : {1, 2, 3}) {
    ThreadGuard guard(threads);
    std::vector<float> p(n * rows), dx(n * rows);
    double dalpha = 0;
    entmax_forward(shape, {x.data()}, {}, {p.data()});
    entmax_backward(shape, {p.data()}, {g.data()}, {dx.data()}, &dalpha);
    if (threads == 1) {
      p1 = p;
      dx1 = dx;
      dalpha1 = dalpha;
    }
    EXPECT_EQ(p, p1);
    EXPECT_EQ(dx, dx1);
    EXPECT_EQ(dalpha, dalpha1);
  }
}

TEST(EntmaxLayout, RowsWithoutEntriesAndEmptySizes) {
  for (double alpha : {1.0, 1.1, 1.5, 1.7, 2.0, 4.0}) {
    std::vector<float> x(10, -kInf), p(10, kNaN), g(10, kNaN), dx(10, kNaN);
    double dalpha = kNaN;
    EntmaxRows rows;
    rows.length = 10;
    rows.alpha = &alpha;
    entmax_forward(rows, {x.data()}, {}, {p.data()});
    entmax_backward(rows, {p.data()}, {g.data()}, {dx.data()}, &dalpha);
    for (int i = 0; i < 10; i++) {
      EXPECT_EQ(p[i], 0.0f);
      EXPECT_EQ(dx[i], 0.0f);
    }
    EXPECT_EQ(dalpha, 0.0);
    rows.length = 0;
    entmax_forward(rows, {nullptr}, {}, {nullptr});
    entmax_backward(rows, {nullptr}, {nullptr}, {nullptr}, &dalpha);
    EXPECT_EQ(dalpha, 0.0);
    rows.sizes = {0, 3};
    rows.alpha_strides = {0, 0};
    rows.length = 4;
    entmax_forward(rows, {nullptr, {12, 4}}, {}, {nullptr, {12, 4}});
  }
}

TEST(EntmaxLayout, InfiniteEntriesShareTheRow) {
  for (double alpha : {1.0, 1.2, 1.5, 2.0, 3.0}) {
    std::vector<float> x = {1, kInf, -kInf, 2, kInf}, p(5);
    EntmaxRows rows;
    rows.length = 5;
    rows.alpha = &alpha;
    entmax_forward(rows, {x.data()}, {}, {p.data()});
    const std::vector<float> want = {0, 0.5f, 0, 0, 0.5f};
    for (int i = 0; i < 5; i++) EXPECT_NEAR(p[i], want[i], 1e-7) << alpha;
  }
}

TEST(EntmaxLayout, BadAlphasAreNamed) {
  const std::vector<float> x = {1, 2};
  std::vector<float> p(2);
  for (double bad : {0.999, -1.0, std::nan(""), static_cast<double>(kInf)}) {
    const double alphas[2] = {1.5, bad};
    EntmaxRows rows;
    rows.sizes = {2};
    rows.length = 1;
    rows.alpha = alphas;
    rows.num_alphas = 2;
    rows.alpha_strides = {1};
    try {
      entmax_forward(rows, {x.data()}, {}, {p.data()});
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("alpha"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(concat(bad)), std::string::npos) << error.what();
    }
  }
}

TEST(EntmaxTopK, IsExactWhenTheSupportFitsAndSaysSo) {
  const int64_t n = 900, rows = 6;
  const std::vector<float> x = normals(n * rows, 8);
  for (double alpha : {1.25, 1.5, 2.0, 3.0}) {
    EntmaxRows shape;
    shape.sizes = {rows};
    shape.length = n;
    shape.alpha = &alpha;
    std::vector<float> p(n * rows);
    entmax_forward(shape, {x.data()}, {}, {p.data()});
    int64_t complete_rows = 0;
    for (int64_t k : {1, 3, 20, 300, 1000}) {
      std::vector<float> values(rows * k, kNaN), want_values(rows * k);
      std::vector<int64_t> indices(rows * k), want_indices(rows * k);
      std::vector<uint8_t> complete(rows), want_complete(rows);
      entmax_topk_forward(shape, {x.data()}, {},
                          {k, values.data(), indices.data(), complete.data()});
      entmax_topk_forward_reference(
          shape, {x.data()}, {},
          {k, want_values.data(), want_indices.data(), want_complete.data()});
      EXPECT_EQ(complete, want_complete);
      for (int64_t r = 0; r < rows; r++) {
        int64_t support = 0;
        for (int64_t i = 0; i < n; i++) support += p[r * n + i] > 0;
        EXPECT_EQ(complete[r] != 0, support <= k);
        complete_rows += complete[r];
        double sum = 0;
        for (int64_t i = 0; i < k; i++) {
          const float v = values[r * k + i];
          const int64_t at = indices[r * k + i];
          sum += v;
          ASSERT_NEAR(v, want_values[r * k + i], 2e-6);
          ASSERT_TRUE(v <= 1e-5f || at == want_indices[r * k + i]);
          ASSERT_EQ(at >= 0, v > 0);
          ASSERT_TRUE(!complete[r] || at < 0 || v == p[r * n + at]);
        }
        EXPECT_NEAR(sum, 1.0, 1e-6);
      }
    }
    EXPECT_GT(complete_rows, 0);
    EXPECT_LT(complete_rows, 5 * rows);
  }
}

// Loss rows in float64 by central differences, and at alpha = 1 against the cross-entropy.
TEST(EntmaxLoss, GradientsAreDerivatives) {
  const int64_t n = 6;
  for (double alpha : {1.0, 1.2, 1.5, 1.9, 2.0, 2.6, 4.0}) {
    std::vector<double> x(n), dx(n);
    for (int64_t i = 0; i < n; i++) x[i] = 0.4 * normal(3, i);
    const int64_t target = 2;
    double loss = 0, dalpha = 0, a = alpha;
    EntmaxRows rows;
    rows.dtype = DType::kFloat64;
    rows.length = n;
    rows.alpha = &a;
    const auto value = [&] {
      double out = 0;
      entmax_loss(rows, {x.data()}, {}, {&target, -100, &out, {}, nullptr});
      return out;
    };
    entmax_loss(rows, {x.data()}, {}, {&target, -100, &loss, {dx.data()}, &dalpha});
    if (alpha == 1) {
      double sum = 0;
      for (double v : x) sum += std::exp(v);
      EXPECT_NEAR(loss, std::log(sum) - x[target], 1e-14);
    } else {  // straight from the definition
      std::vector<double> p(n);
      entmax_forward(rows, {x.data()}, {}, {p.data()});
      double want = -x[target], power = 0;
      for (int64_t i = 0; i < n; i++) {
        want += p[i] * x[i];
        power += std::pow(p[i], alpha);
      }
      EXPECT_NEAR(loss, want + (1 - power) / (alpha * (alpha - 1)), 1e-12);
    }
    const double step = 1e-6;
    for (int64_t i = 0; i < n; i++) {
      const double at = x[i];
      x[i] = at + step;
      const double up = value();
      x[i] = at - step;
      const double down = value();
      x[i] = at;
      EXPECT_NEAR(dx[i], (up - down) / (2 * step), 1e-8) << alpha;
    }
    a = alpha + step;
    const double up = value();
    a = alpha == 1 ? alpha : alpha - step;
    const double down = value();
    EXPECT_NEAR(dalpha, (up - down) / (alpha == 1 ? step : 2 * step), alpha == 1 ? 1e-5 : 1e-8)
        << alpha;
  }
}

TEST(EntmaxLoss, Float32EqualsTheDefinition) {
  const int64_t n = 333, rows = 40;
  std::vector<float> x = normals(n * rows, 12);
  for (int64_t i = 0; i < 10 * n; i++) x[i] *= 1000;  // large scores cancel
  std::vector<uint8_t> mask(n * rows, 1);
  std::vector<int64_t> target(rows);
  for (int64_t r = 0; r < rows; r++) target[r] = r * 7 % n;
  target[4] = -100;
  mask[5 * n + target[5]] = 0;                        // an excluded target
  std::fill(&mask[6 * n], &mask[7 * n], uint8_t{0});  // no entries
  for (const std::string& name : simd_targets()) {
    SimdGuard guard(name);
    for (double alpha : {1.0, 1.001, 1.5, 1.8, 2.0, 3.0}) {
      EntmaxRows shape;
      shape.sizes = {rows};
      shape.length = n;
      shape.alpha = &alpha;
      std::vector<float> dx(n * rows, kNaN), want_dx(n * rows);
      std::vector<double> loss(rows), want(rows), dalpha(rows), want_dalpha(rows);
      entmax_loss(shape, {x.data()}, {mask.data()},
                  {target.data(), -100, loss.data(), {dx.data()}, dalpha.data()});
      entmax_loss_reference(
          shape, {x.data()}, {mask.data()},
          {target.data(), -100, want.data(), {want_dx.data()}, want_dalpha.data()});
      for (int64_t i = 0; i < n * rows; i++) ASSERT_NEAR(dx[i], want_dx[i], 2e-6) << name;
      for (int64_t r = 0; r < rows; r++) {
        if (r == 5) {
          EXPECT_EQ(loss[r], kInf);
          continue;
        }
        EXPECT_NEAR(loss[r], want[r], 2e-6 * (1 + want[r])) << name << " " << alpha;
        EXPECT_NEAR(dalpha[r], want_dalpha[r], 1e-5 * (1 + std::fabs(want_dalpha[r]))) << name;
      }
      EXPECT_EQ(loss[4], 0.0);
      EXPECT_EQ(loss[6], 0.0);
    }
  }
  target[3] = n;
  const double alpha = 1.5;
  EntmaxRows shape;
  shape.sizes = {rows};
  shape.length = n;
  shape.alpha = &alpha;
  std::vector<double> loss(rows);
  EXPECT_THROW(entmax_loss(shape, {x.data()}, {}, {target.data(), -100, loss.data(), {}, nullptr}),
               Error);
}

}  // namespace
}  // namespace hedgerow::kernels
