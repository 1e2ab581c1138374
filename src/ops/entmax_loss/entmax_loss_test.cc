#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "hedgerow/ops.h"
#include "testing/tensor_expect.h"

namespace hedgerow::ops {
namespace {

using testing_support::expect_close;
using testing_support::expect_refused;
using EntmaxLoss = testing_support::SeededTest;

at::Tensor scalar(double value) { return at::full({}, value, at::kDouble); }

at::Tensor classes(at::ArrayRef<int64_t> values) { return at::tensor(values, at::kLong); }

TEST_F(EntmaxLoss, SoftmaxGivesCrossEntropy) {
  const at::Tensor x = (at::randn({6, 9}, at::kDouble) * 4).requires_grad_(true);
  const at::Tensor target = classes({0, 8, 3, 4, -100, 2});
  for (const Path chosen : {Path::automatic, Path::composite_only}) {
    set_path(chosen);
    const at::Tensor want = at::cross_entropy_loss(x, target, {}, at::Reduction::None, -100, 0.0);
    const at::Tensor got = entmax_loss(x, target, scalar(1));
    expect_close(got, want, 1e-12);
    const auto ours = torch::autograd::grad({got.square().sum()}, {x});
    const auto theirs = torch::autograd::grad({want.square().sum()}, {x});
    expect_close(ours[0], theirs[0], 1e-11);
  }
  set_path(Path::automatic);
}

TEST_F(EntmaxLoss, IsTheFenchelYoungFormula) {
  const at::Tensor x = at::randn({5, 7}, at::kDouble) * 2, target = classes({0, 6, 3, 2, 2});
  for (const Path chosen : {Path::automatic, Path::composite_only}) {
    set_path(chosen);
    for (const double alpha : {1.0001, 1.3, 1.5, 2.0, 3.7}) {
      const at::Tensor p = entmax(x, scalar(alpha));
      const at::Tensor entropy = (1 - p.pow(alpha).sum(-1)) / (alpha * (alpha - 1));
      const at::Tensor want =
          (p * x).sum(-1) - x.gather(-1, target.unsqueeze(-1)).squeeze(-1) + entropy;
      expect_close(entmax_loss(x, target, scalar(alpha)), want, alpha < 1.01 ? 1e-9 : 1e-12);
    }
  }
  set_path(Path::automatic);
}

TEST_F(EntmaxLoss, AlphaGradientMatchesDifferences) {
  const at::Tensor x = at::randn({5, 7}, at::kDouble) * 2, target = classes({0, 6, 3, -100, 2});
  for (const Path chosen : {Path::automatic, Path::composite_only}) {
    set_path(chosen);
    for (const double value : {1.00001, 1.2, 1.5, 2.0, 4.0}) {
      const at::Tensor alpha = scalar(value).requires_grad_(true);
      entmax_loss(x, target, alpha).sum().backward();
      const double step = 1e-6;
      const double numeric = (entmax_loss(x, target, scalar(value + step)) -
                              entmax_loss(x, target, scalar(value - step)))
                                 .sum()
                                 .item<double>() /
                             (2 * step);
      EXPECT_NEAR(alpha.grad().item<double>(), numeric, 1e-7);
    }
  }
  set_path(Path::automatic);
}

TEST_F(EntmaxLoss, IsZeroOnceTheTargetLeads) {
  // at alpha = 1.5 a lead of 1 / (alpha - 1) = 2 is enough
  const at::Tensor x = at::tensor({1.0f, 3.5f, 1.0f}).view({1, 3}).requires_grad_(true);
  const at::Tensor loss = entmax_loss(x, classes({1}), scalar(1.5));
  EXPECT_EQ(loss.item<double>(), 0);
  loss.sum().backward();
  EXPECT_EQ(x.grad().abs().max().item<double>(), 0);
}

TEST_F(EntmaxLoss, EdgesOfRows) {
  for (const Path chosen : {Path::automatic, Path::composite_only}) {
    set_path(chosen);
    const at::Tensor x =
        at::tensor({-INFINITY, 1.0f, -INFINITY, -INFINITY, 1e4f, -1e4f}).view({3, 2});
    const at::Tensor in = x.clone().requires_grad_(true);
    const at::Tensor loss = entmax_loss(in, classes({0, 1, 1}), scalar(1.5));
    EXPECT_TRUE(std::isinf(loss[0].item<float>()));
    EXPECT_EQ(loss[1].item<float>(), 0);
    EXPECT_NEAR(loss[2].item<float>(), 2e4, 0.01);
    loss.slice(0, 1).sum().backward();
    expect_close(in.grad(), at::tensor({0.0f, 0.0f, 0.0f, 0.0f, 1.0f, -1.0f}).view({3, 2}));
  }
  set_path(Path::automatic);
}

TEST_F(EntmaxLoss, WrongTargetsAreNamed) {
  const at::Tensor x = at::zeros({2, 3});
  expect_refused(
      [&] {
        entmax_loss(x, classes({0, 3}), scalar(1.5));
      },
      "entmax_loss", {"target", "[0, 3)", "got 3"});
  expect_refused(
      [&] {
        entmax_loss(x, classes({-1, 1}), scalar(1.5));
      },
      "entmax_loss", {"target", "got -1"});
  expect_refused([&] { entmax_loss(x, classes({0}), scalar(1.5)); }, "entmax_loss",
                 {"target", "[2]", "[1]"});
  expect_refused([&] { entmax_loss(x, at::zeros({2}), scalar(1.5)); }, "entmax_loss",
                 {"target must be int64", "float32"});
  expect_refused(
      [&] {
        entmax_loss(x, classes({0, 1}), scalar(0.5));
      },
      "entmax_loss", {"alpha", "0.5"});
}

}  // namespace
}  // namespace hedgerow::ops
