#include "hedgerow/kernels/simd.h"

#include <cstdlib>
#include <mutex>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common/simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// This file is compiled once per target like every kernel, so that its list of compiled targets is
// the kernels' own.
HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {
int64_t compiled_target() { return HWY_TARGET; }
}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "hedgerow/error.h"

namespace hedgerow::kernels {
HWY_EXPORT(compiled_target);
namespace {

std::string lower_name(int64_t target) {
  std::string name = hwy::TargetName(target);
  for (char& c : name) c = static_cast<char>(std::tolower(c));
  return name;
}

int64_t runnable() {
  static const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return targets;
}

void use(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(target);
}

// Highway's choice happens at the first dispatched call; ours happens when the library is loaded,
// so that HEDGEROW_SIMD holds for all of them.
const bool initialised = [] {
  runnable();
  const char* wanted = std::getenv("HEDGEROW_SIMD");
  if (wanted != nullptr && *wanted != '\0') set_simd_target(wanted);
  return true;
}();

}  // namespace

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (int64_t left = runnable(); left != 0; left &= left - 1)
    names.push_back(lower_name(left & -left));
  return names;
}

std::string simd_target() { return lower_name(HWY_DYNAMIC_DISPATCH(compiled_target)()); }

void set_simd_target(const std::string& name) {
  if (name.empty()) return use(runnable());
  std::string have;
  for (int64_t left = runnable(); left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    if (lower_name(target) == name) return use(target);
    have += (have.empty() ? "" : " ") + lower_name(target);
  }
  throw Error(concat("simd: the target must be one that this machine and build have (", have,
                     "); got ", name));
}

}  // namespace hedgerow::kernels
#endif  // HWY_ONCE
