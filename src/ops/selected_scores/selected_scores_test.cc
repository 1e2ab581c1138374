#include "ops/selected_scores/selected_scores.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

namespace hedgerow::ops {
namespace {

std::string refusal(const at::Tensor& q, const at::Tensor& k, const at::Tensor& positions) {
  try {
    selected_scores(q, k, positions);
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  }
  return "";
}

TEST(SelectedScores, RefusesWhatItsKernelCouldNotRead) {
  const at::Tensor q = at::ones({1, 2, 3, 4}), k = at::ones({1, 2, 5, 4});
  const auto at = [](int64_t s) { return at::full({1, 3, 2}, s, at::kLong); };
  EXPECT_EQ(refusal(q, k, at(4)), "");
  EXPECT_NE(refusal(q, k, at(5)).find("positions must be in [0, 5); got 5"), std::string::npos);
  EXPECT_NE(refusal(q, k, at(-1)).find("positions must be in [0, 5); got -1"), std::string::npos);
  EXPECT_NE(refusal(q, k, at(0).to(at::kInt)).find("must be int64"), std::string::npos);
  EXPECT_NE(refusal(q, k, at(0).narrow(1, 0, 2)).find("[1 or H, T, P]"), std::string::npos);
}

TEST(SelectedScores, AreTheScoresAtThePositions) {
  const at::Tensor q = at::randn({2, 4, 3, 6}, at::kDouble),
                   k = at::randn({2, 2, 5, 6}, at::kDouble);
  const at::Tensor positions = at::randint(5, {4, 3, 2}, at::kLong);
  const at::Tensor all = at::matmul(q, k.repeat_interleave(2, 1).transpose(2, 3));
  const at::Tensor want = all.gather(3, positions.unsqueeze(0).expand({2, 4, 3, 2}));
  EXPECT_TRUE(at::allclose(selected_scores(q, k, positions), want, 1e-12, 1e-12));
}

}  // namespace
}  // namespace hedgerow::ops
