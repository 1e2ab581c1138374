#include "nn/precision.h"

#include "base/cpu.h"

namespace hedgerow::nn {
namespace {

thread_local bool in_bfloat16 = false;

}  // namespace

bool has_fast_bfloat16() { return cpu_multiplies_bfloat16(); }

LinearInBfloat16::LinearInBfloat16(bool enable) : before_(in_bfloat16) {
  in_bfloat16 = in_bfloat16 || enable;
}
LinearInBfloat16::~LinearInBfloat16() { in_bfloat16 = before_; }
bool LinearInBfloat16::enabled() { return in_bfloat16; }

}  // namespace hedgerow::nn
