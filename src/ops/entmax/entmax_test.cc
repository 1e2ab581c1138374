// What is special to entmax of rows: its values against an independent solution, both forms and
// their seam, the edges of rows, and texts of refusals.
#include "ops/entmax/entmax.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

#include "hedgerow/ops.h"
#include "testing/tensor_expect.h"

namespace hedgerow::ops {
namespace {

using testing_support::expect_close;
using testing_support::expect_refused;
using Entmax = testing_support::SeededTest;

constexpr double kInf = std::numeric_limits<double>::infinity();

at::Tensor scalar(double value) { return at::full({}, value, at::kDouble); }

// The root by bisection in long double, p from a threshold only where that is well conditioned.
std::vector<double> by_bisection(const at::Tensor& row, double alpha) {
  const at::Tensor z = row.to(at::kDouble).contiguous();
  const long double e = alpha - 1, top = z.max().item<double>();
  const auto weight = [&](int64_t i, long double lambda) {
    const long double w = z.const_data_ptr<double>()[i] - top - lambda;
    if (e == 0) return std::exp(w);
    return e * w <= -1 ? 0.0L : std::exp(std::log1p(e * w) / e);
  };
  long double low = 0, high = e == 0 ? std::log(static_cast<long double>(z.numel()))
                                     : -std::expm1(-e * std::log((long double)z.numel())) / e;
  for (int step = 0; step < 200; step++) {
    const long double middle = (low + high) / 2;
    long double sum = 0;
    for (int64_t i = 0; i < z.numel(); i++) sum += weight(i, middle);
    (sum >= 1 ? low : high) = middle;
  }
  std::vector<double> p;
  for (int64_t i = 0; i < z.numel(); i++) p.push_back(static_cast<double>(weight(i, low)));
  return p;
}

TEST_F(Entmax, BothPathsFindTheRoot) {
  for (const Path chosen : {Path::automatic, Path::composite_only}) {
    set_path(chosen);
    for (const int64_t n : {1, 2, 7, 64, 501}) {
      for (const double scale : {1e-3, 1.0, 30.0, 1e4}) {
        const at::Tensor x = at::randn({n}, at::kDouble) * scale;
        for (const double alpha :
             {1.0, 1.0 + 1e-9, 1.0001, 1.05, 1.3, 1.5, 1.9, 2.0, 2.0001, 2.4}) {
          const at::Tensor want = at::tensor(by_bisection(x, alpha), at::kDouble);
          // the float64 score itself has an error of scale * 1e-16, which s <= p^(2-alpha) widens
          const double tolerance = alpha > 2 ? 1e-8 : 1e-11 * std::max(1.0, scale / 100);
          expect_close(entmax(x, scalar(alpha)), want, tolerance);
        }
      }
    }
  }
  set_path(Path::automatic);
}

TEST_F(Entmax, LargeAlphasSolveTheirEquation) {
  // (e (z_i - z_j) = p_i^e - p_j^e on the support, no more than p^e below it; sums of 1
  for (const Path chosen : {Path::automatic, Path::composite_only}) {
    set_path(chosen);
    for (const double alpha : {2.5, 4.0, 10.0, 50.0}) {
      const double e = alpha - 1;
      const at::Tensor x = at::randn({40, 33}, at::kDouble) * 0.2;
      const at::Tensor p = entmax(x, scalar(alpha));
      expect_close(p.sum(-1), at::ones({40}, at::kDouble), 1e-12);
      const at::Tensor tau = e * x - p.pow(e);
      const at::Tensor top = tau.masked_fill(p == 0, -kInf).amax(-1, true);
      expect_close(tau.where(p > 0, top), top.expand_as(tau), 1e-12);
      EXPECT_TRUE((e * x <= top + 1e-12).logical_or(p > 0).all().item<bool>());
    }
  }
  set_path(Path::automatic);
}

TEST_F(Entmax, ManyCloseScoresConverge) {
  // ties, geometric gaps and a plateau: kinks of the sum lie close together
  const at::Tensor geometric = at::arange(300, at::kDouble).mul(-0.1).exp2().neg();
  const at::Tensor ties = at::cat({at::zeros({100}, at::kDouble), geometric});
  for (const double alpha : {1.001, 1.5, 1.99, 2.0, 2.5, 7.0}) {
    set_path(Path::composite_only);
    const at::Tensor composite =
        at::stack({entmax(geometric, scalar(alpha)).sum(), entmax(ties, scalar(alpha)).sum()});
    set_path(Path::automatic);
    expect_close(composite, at::ones({2}, at::kDouble), 1e-12);
    expect_close(entmax(ties, scalar(alpha)).sum(), at::ones({}, at::kDouble), 1e-12);
  }
}

TEST_F(Entmax, EdgesOfRows) {
  const double lowest = std::numeric_limits<float>::lowest();
  for (const Path chosen : {Path::automatic, Path::composite_only}) {
    set_path(chosen);
    for (const double alpha : {1.0, 1.5, 2.0, 5.0}) {
      const auto of = [&](at::ArrayRef<double> row) {
        return entmax(at::tensor(row, at::kFloat), scalar(alpha));
      };
      expect_close(of({-INFINITY, -INFINITY}), at::zeros({2}));
      expect_close(of({-INFINITY, lowest, lowest}), at::tensor({0.0f, 0.5f, 0.5f}));
      expect_close(of({lowest, 0, -INFINITY}), at::tensor({0.0f, 1.0f, 0.0f}));
      expect_close(of({3}), at::ones({1}));
      EXPECT_EQ(of({}).numel(), 0);
      const at::Tensor x = at::tensor({NAN, 1.0f, 2.0f, NAN}).view({2, 2});
      const at::Tensor keep = at::tensor({0, 1, 1, 0}, at::kInt).to(at::kBool).view({2, 2});
      expect_close(entmax(x, scalar(alpha), -1, keep), keep.to(at::kFloat));
      expect_close(entmax(x, scalar(alpha), 0, at::zeros({1, 1}, at::kBool)), at::zeros({2, 2}));
    }
  }
  set_path(Path::automatic);
}

TEST_F(Entmax, GradientNearSoftmaxIsItsLimit) {
  const at::Tensor x = at::randn({5, 9}, at::kDouble), g = at::randn({5, 9}, at::kDouble);
  const at::Tensor p = x.softmax(-1), h = p.log();
  const at::Tensor square = h.square();
  const at::Tensor limit = p / 2 * ((p * square).sum(-1, true) - square);  // dp/dalpha at 1
  for (const Path chosen : {Path::automatic, Path::composite_only}) {
    set_path(chosen);
    for (const double above : {0.0, 1e-12, 1e-9, 1e-7}) {
      const at::Tensor alpha = scalar(1 + above).requires_grad_(true);
      (entmax(x, alpha) * g).sum().backward();
      EXPECT_NEAR(alpha.grad().item<double>(), (limit * g).sum().item<double>(),
                  1e-10 + 20 * above);
    }
  }
  set_path(Path::automatic);
}

TEST_F(Entmax, AlphaGradientsMatchDifferences) {
  const at::Tensor x = at::randn({6, 17}, at::kDouble), g = at::randn({6, 17}, at::kDouble);
  for (const Path chosen : {Path::automatic, Path::composite_only}) {
    set_path(chosen);
    for (const double value : {1.001, 1.1, 1.5, 1.99, 2.0, 2.01, 2.6, 4.0, 9.0}) {
      const at::Tensor alpha = scalar(value).requires_grad_(true);
      (entmax(x, alpha) * g).sum().backward();
      const double step = 1e-6;
      const double numeric =
          ((entmax(x, scalar(value + step)) - entmax(x, scalar(value - step))) * g)
              .sum()
              .item<double>() /
          (2 * step);
      EXPECT_NEAR(alpha.grad().item<double>(), numeric, 1e-6 * std::max(1.0, std::fabs(numeric)))
          << value;
    }
  }
  set_path(Path::automatic);
}

TEST_F(Entmax, OneDominantEntryLosesNoDigits) {
  // two supported entries, the smaller of weight 1e-6: its s = p^(2-alpha) is 1e48 at alpha = 10
  const double e = 9, small = 1e-6;
  const at::Tensor x =
      at::tensor({(std::pow(1 - small, e) - std::pow(small, e)) / e, 0.0, -3.0}, at::kDouble);
  for (const Path chosen : {Path::automatic, Path::composite_only}) {
    set_path(chosen);
    const at::Tensor in = x.clone().requires_grad_(true);
    const at::Tensor p = entmax(in, scalar(1 + e));
    p[0].backward();
    // dp_0/dz_0 = s_0 s_1 / (s_0 + s_1), which is s_0 to 42 digits
    const double s0 = std::pow(1 - small, 1 - e);
    expect_close(in.grad(), at::tensor({s0, -s0, 0.0}, at::kDouble), 1e-9);
  }
  set_path(Path::automatic);
}

TEST_F(Entmax, TopKIsWholeRowsWhereTheSupportFits) {
  const at::Tensor x = (at::randn({3, 50, 4}, at::kDouble) * 3).requires_grad_(true);
  const at::Tensor alpha = scalar(1.5).requires_grad_(true), g = at::randn({3, 50, 4}, at::kDouble);
  const at::Tensor whole = entmax(x, alpha, 1);
  const auto [values, indices, complete] = entmax_topk(x, alpha, 20, 1);
  ASSERT_TRUE(complete.all().item<bool>());
  const at::Tensor dense = at::zeros_like(whole).scatter_add(1, indices.clamp_min(0), values);
  expect_close(dense, whole, 1e-12);
  const auto want = torch::autograd::grad({(whole * g).sum()}, {x, alpha});
  const auto got = torch::autograd::grad({(dense * g).sum()}, {x, alpha});
  expect_close(got[0], want[0], 1e-12);
  expect_close(got[1], want[1], 1e-12);
  const auto [few, where, all] = entmax_topk(at::zeros({2, 50}), scalar(1.5), 3);
  EXPECT_FALSE(all.any().item<bool>());
  expect_close(few, at::full({2, 3}, 1.0 / 3), 1e-6);
  const auto [wide, places, fits] = entmax_topk(at::zeros({2, 3}), scalar(2), 5);
  expect_close(wide.sum(-1), at::ones({2}), 1e-6);
  EXPECT_TRUE(places.slice(1, 3).eq(-1).all().item<bool>() && fits.all().item<bool>());
}

TEST_F(Entmax, WrongArgumentsAreNamed) {
  const at::Tensor x = at::zeros({2, 3});
  for (const double alpha : {0.99, -1.0, std::nan(""), kInf})
    expect_refused([&] { entmax(x, scalar(alpha)); }, "entmax", {"alpha", "at least 1; got"});
  const at::Tensor one_wrong = at::tensor({1.5f, 0.25f}).view({2, 1});
  expect_refused([&] { entmax(x, one_wrong); }, "entmax", {"alpha", "0.25"});
  expect_refused([&] { entmax(x, at::ones({3})); }, "entmax", {"alpha", "[3]", "[2, 3]"});
  expect_refused([&] { entmax(x, at::ones({2, 3})); }, "entmax", {"alpha", "size 1 on dim 1"});
  expect_refused([&] { entmax(x, at::ones({}, at::kLong)); }, "entmax", {"alpha", "int64"});
  expect_refused([&] { entmax(x, scalar(1.5), 2); }, "entmax", {"dim", "[-2, 2)", "2"});
  expect_refused([&] { entmax(x, scalar(1.5), -1, at::ones({3})); }, "entmax",
                 {"mask must be boolean", "float32"});
  expect_refused([&] { entmax(x, scalar(1.5), -1, at::ones({2}, at::kBool)); }, "entmax",
                 {"mask", "[2]", "[2, 3]"});
  expect_refused([&] { sparsemax(at::zeros({}), -1); }, "sparsemax", {"x", "scalar"});
  expect_refused([&] { entmax_topk(x, scalar(1.5), 0); }, "entmax_topk", {"k", "0"});
  // gradients recorded: the same texts
  const at::Tensor learned = scalar(0.5).requires_grad_(true);
  expect_refused([&] { entmax(x, learned); }, "entmax", {"alpha", "0.5"});
}

}  // namespace
}  // namespace hedgerow::ops
