#include "hedgerow/kernels/fma_peak.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common/fma_peak.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 12 chains hide a latency of 4 to 6 cycles at 2 multiply-adds a cycle and fit 16 registers.
constexpr int kChains = 12;

HWY_NOINLINE int64_t fma_peak_work(int64_t steps) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  V sum[kChains];
  _Pragma("GCC unroll 12") for (int i = 0; i < kChains; i++) sum[i] = hn::Set(d, 1.0f + i);
  // Values shrink towards b / (1 - a): no denormals, no overflow, nothing to fold at compile time.
  const V a = hn::Set(d, 0.999f), b = hn::Set(d, 1e-3f);
  for (int64_t s = 0; s < steps; s++) {
    _Pragma("GCC unroll 12") for (int i = 0; i < kChains; i++) sum[i] = hn::MulAdd(sum[i], a, b);
  }
  V total = sum[0];
  _Pragma("GCC unroll 12") for (int i = 1; i < kChains; i++) total = hn::Add(total, sum[i]);
  volatile float sink = hn::GetLane(total);
  (void)sink;
  return steps * kChains * 2 * static_cast<int64_t>(hn::Lanes(d));
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hedgerow::kernels {
HWY_EXPORT(fma_peak_work);
int64_t fma_peak_work(int64_t steps) { return HWY_DYNAMIC_DISPATCH(fma_peak_work)(steps); }
}  // namespace hedgerow::kernels
#endif  // HWY_ONCE
