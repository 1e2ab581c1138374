// Expectations on tensors and on the texts of refused calls; tests whose random tensors repeat.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hedgerow::testing_support {

// A fixture: at::rand() and at::randn() give the same in every run of a test, alone or among
// others.
class SeededTest : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(1); }
};

inline void expect_close(const at::Tensor& got, const at::Tensor& want, double tolerance = 1e-6) {
  ASSERT_EQ(got.sizes(), want.sizes());
  if (got.numel() == 0) return;
  const double off = (got.to(at::kDouble) - want.to(at::kDouble)).abs().max().item<double>();
  EXPECT_LE(off, tolerance) << "got " << got << "\nwant " << want;  // NaN fails
}

// The call throws c10::Error whose text starts with "op: " and holds every word.
template <typename Call>
void expect_refused(Call call, const std::string& op, const std::vector<std::string>& words) {
  try {
    call();
    ADD_FAILURE() << op << " accepted what it must refuse";
  } catch (const c10::Error& e) {
    const std::string text = e.what_without_backtrace();
    EXPECT_EQ(text.rfind(op + ": ", 0), 0u) << text;
    for (const std::string& word : words)
      EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
  }
}

}  // namespace hedgerow::testing_support
