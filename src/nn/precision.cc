#include "nn/precision.h"

namespace hedgerow::nn {
namespace {

thread_local bool in_bfloat16 = false;

}  // namespace

bool has_fast_bfloat16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

LinearInBfloat16::LinearInBfloat16(bool enable) : before_(in_bfloat16) {
  in_bfloat16 = in_bfloat16 || enable;
}
LinearInBfloat16::~LinearInBfloat16() { in_bfloat16 = before_; }
bool LinearInBfloat16::enabled() { return in_bfloat16; }

}  // namespace hedgerow::nn
