// The physical limit that benchmark figures are held against.
#pragma once

#include <cstdint>

namespace hedgerow::kernels {

// Runs `steps` rounds of independent float32 multiply-adds in registers on the calling thread, with
// the SIMD target in use, and returns the floating-point operations done (two per multiply-add).
// Time it to get the core's peak.
int64_t fma_peak_work(int64_t steps);

}  // namespace hedgerow::kernels
