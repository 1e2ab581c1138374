// Sets the SIMD target or the thread count for a scope.
#pragma once

#include <string>

#include "base/parallel.h"
#include "hedgerow/kernels/simd.h"

namespace hedgerow::testing_support {

class SimdGuard {
 public:
  explicit SimdGuard(const std::string& target) { kernels::set_simd_target(target); }
  ~SimdGuard() { kernels::set_simd_target(""); }
  SimdGuard(const SimdGuard&) = delete;
  SimdGuard& operator=(const SimdGuard&) = delete;
};

class ThreadGuard {
 public:
  explicit ThreadGuard(int64_t count) : before_(num_threads()) { set_num_threads(count); }
  ~ThreadGuard() { set_num_threads(before_); }
  ThreadGuard(const ThreadGuard&) = delete;
  ThreadGuard& operator=(const ThreadGuard&) = delete;

 private:
  int64_t before_;
};

}  // namespace hedgerow::testing_support
