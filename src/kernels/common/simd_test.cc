#include "hedgerow/kernels/simd.h"

#include <gtest/gtest.h>

#include "hedgerow/error.h"

namespace hedgerow::kernels {
namespace {

TEST(Simd, EveryListedTargetCanBeChosen) {
  const std::vector<std::string> targets = simd_targets();
  ASSERT_FALSE(targets.empty());
  for (const std::string& name : targets) {
    set_simd_target(name);
    EXPECT_EQ(simd_target(), name);
  }
  set_simd_target("");
  EXPECT_EQ(simd_target(), targets.front());
}

TEST(Simd, UnknownTargetNamesWhatThereIs) {
  try {
    set_simd_target("quantum");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(simd_targets().front()), std::string::npos);
  }
}

}  // namespace
}  // namespace hedgerow::kernels
