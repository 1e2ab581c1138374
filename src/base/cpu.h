// What the processor can do beyond what Highway's targets say.
#pragma once

namespace hedgerow {

// Products of bfloat16 pairs summed in float32 (AVX512_BF16).
inline bool cpu_multiplies_bfloat16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

}  // namespace hedgerow
