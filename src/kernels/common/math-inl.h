// Vector mathematics of the kernels: exponentials, reciprocal, reductions. Include after
// hwy/foreach_target.h like any Highway "-inl.h" header.
#include <cstdint>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_COMMON_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_COMMON_MATH_INL_H_
#undef HEDGEROW_KERNELS_COMMON_MATH_INL_H_
#else
#define HEDGEROW_KERNELS_COMMON_MATH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

// Floats per vector of this target.
HWY_INLINE int64_t float_lanes() { return static_cast<int64_t>(hn::Lanes(FloatTag())); }

// p * 2^n for integral n in [-300, 300], with subnormals and overflow as the hardware rounds them.
HWY_INLINE FloatVec scale_by_power(FloatVec p, FloatVec n) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return FloatVec{_mm512_scalef_ps(p.raw, n.raw)};
#else
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);  // two factors, since 2^-150 is no float
  const auto bias = hn::Set(di, 127);
  const auto a = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const auto b = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  return hn::Mul(hn::Mul(p, a), b);
#endif
}

// x within [low, high]; NaN stays NaN (x86 min and max return their second operand then).
HWY_INLINE FloatVec clamp_vec(FloatVec x, float low, float high) {
  const FloatTag d;
  const FloatVec y = hn::Min(hn::Set(d, high), hn::Max(hn::Set(d, low), x));
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  return hn::IfThenElse(hn::Eq(x, x), y, x);
#else
  return y;
#endif
}

// 2^x, within 2 ULP; exactly 1 at 0, 0 from -151 down (-inf included), inf from 128 up, NaN of NaN.
// Degree-5 minimax of (2^f - 1) / f on [-1/2, 1/2], relative error 9.2e-8.
HWY_INLINE FloatVec exp2_vec(FloatVec x) {
  const FloatTag d;
  x = clamp_vec(x, -152.0f, 129.0f);
  const FloatVec n = hn::Round(x);
  const FloatVec f = hn::Sub(x, n);
  FloatVec p = hn::Set(d, 0.0013264727f);
  p = hn::MulAdd(p, f, hn::Set(d, 0.009671513f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.055507336f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.24022242f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.69314700f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  return scale_by_power(p, n);
}

// e^x, within 2 ULP; exactly 1 at 0, 0 from -105 down (-inf included), inf above 88.72, NaN of NaN.
// x = n ln2 + r with ln2 in two parts; degree-6 minimax of (e^r - 1) / r, relative error 2e-9.
HWY_INLINE FloatVec exp_vec(FloatVec x) {
  const FloatTag d;
  x = clamp_vec(x, -105.0f, 89.5f);
  const FloatVec n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504f)));
  FloatVec r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  FloatVec p = hn::Set(d, 0.0013843644f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.008374164f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.041668f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.16666432f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.49999994f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  return scale_by_power(p, n);
}

// 1 / x within 2 ULP for normal x whose reciprocal is normal: the approximation and Newton steps.
HWY_INLINE FloatVec reciprocal_vec(FloatVec x) {
  const FloatTag d;
  FloatVec r = hn::ApproximateReciprocal(x);
  r = hn::MulAdd(r, hn::NegMulAdd(x, r, hn::Set(d, 1.0f)), r);
  return hn::MulAdd(r, hn::NegMulAdd(x, r, hn::Set(d, 1.0f)), r);
}

HWY_INLINE float reduce_sum(FloatVec x) { return hn::GetLane(hn::SumOfLanes(FloatTag(), x)); }
HWY_INLINE float reduce_max(FloatVec x) { return hn::GetLane(hn::MaxOfLanes(FloatTag(), x)); }

// Lane i of the result, for i < float_lanes(), is the sum of the lanes of the vector that lies at
// sums + i * float_lanes(): many horizontal sums for the price of lanes - 1 vector additions.
// `sums` (float_lanes()^2 floats, vector-aligned) is overwritten.
HWY_INLINE FloatVec reduce_sums(float* HWY_RESTRICT sums) {
  const FloatTag d;
  const int64_t n = float_lanes();
  const auto index = hn::Mul(hn::Iota(hn::RebindToSigned<FloatTag>(), 0),
                             hn::Set(hn::RebindToSigned<FloatTag>(), static_cast<int32_t>(n)));
  FloatVec total = hn::GatherIndex(d, sums, index);
  for (int64_t i = 1; i < n; i++) total = hn::Add(total, hn::GatherIndex(d, sums + i, index));
  return total;
}

// sum_i a[i] b[i], any n.
HWY_INLINE float dot(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t n) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  FloatVec s = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) s = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), s);
  float total = reduce_sum(s);
  for (; i < n; i++) total += a[i] * b[i];
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_COMMON_MATH_INL_H_
