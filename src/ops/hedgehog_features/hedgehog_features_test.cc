#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "hedgerow/ops.h"
#include "testing/tensor_expect.h"

namespace hedgerow::ops {
namespace {

using testing_support::expect_close;
using testing_support::expect_refused;
using HedgehogFeatures = testing_support::SeededTest;

// One head, y = (1, 2) through the weight alone.
at::Tensor map(std::string_view variant) {
  const at::Tensor x = at::tensor({1.0, 0.5}).view({1, 1, 1, 2});
  const at::Tensor weight = at::tensor({1.0, 0.0, 0.0, 4.0}).view({1, 2, 2});
  return hedgehog_features(x, weight, {}, variant).flatten();
}

TEST_F(HedgehogFeatures, EachMapIsItsFormula) {
  const double e1 = std::exp(1.0), e2 = std::exp(2.0);
  expect_close(map("exp"), at::tensor({e1, e2, 1 / e1, 1 / e2}), 1e-12);
  const double up = 1 / (1 + e1), down = e1 / (1 + e1);
  expect_close(map("softmax"), at::tensor({up, down, down, up}), 1e-12);
  expect_close(map("softmax_joint"), at::softmax(at::tensor({2.0, 4.0, -2.0, -4.0}), 0), 1e-12);
  expect_close(map("elu"), at::tensor({2.0, 3.0}), 1e-12);
  expect_close(map("relu"), at::tensor({1.0, 2.0}), 1e-12);
  const double r = std::sqrt(0.5);
  expect_close(map("taylor"), at::tensor({1.0, 1.0, 2.0, r, 2 * r, 2 * r, 4 * r}), 1e-12);
  expect_close(map("exp_half"), at::tensor({e1, e2}), 1e-12);
  expect_close(map("performer"), at::tensor({e1, e2}) * (std::exp(-0.625) * r), 1e-12);
}

TEST_F(HedgehogFeatures, ProjectionIsInputMajorWithBiasPerHead) {
  const at::Tensor x = at::randn({2, 3, 4, 5}, at::kDouble),
                   weight = at::randn({3, 5, 2}, at::kDouble),
                   bias = at::randn({3, 2}, at::kDouble);
  const at::Tensor y = at::einsum("bhsd,hde->bhse", {x, weight}) + bias.view({1, 3, 1, 2});
  expect_close(hedgehog_features(x, weight, bias, "relu"), y.clamp_min(0), 1e-12);
}

TEST_F(HedgehogFeatures, WrongArgumentsAreNamed) {
  const at::Tensor x = at::ones({1, 2, 3, 4});
  expect_refused(
      [&] {
        hedgehog_features(x, at::ones({2, 5, 4}));
      },
      "hedgehog_features", {"weight", "[2, 5, 4]"});
  expect_refused(
      [&] {
        hedgehog_features(x, at::ones({2, 4, 4}), {}, "cosine");
      },
      "hedgehog_features", {"variant", "performer", "cosine"});
}

}  // namespace
}  // namespace hedgerow::ops
