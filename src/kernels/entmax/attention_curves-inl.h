// The curves that entmax draws from scores to weights, one per kind of alpha, and the threshold of
// a row of scores on vectors. With e = alpha - 1 and w = z - lambda:
//   u = 1 + e w (0 off the support), p = u^(1/e), s = p^(1-e) = -dp/dlambda, p = s u.
// Include after hwy/foreach_target.h.
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_ENTMAX_ATTENTION_CURVES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_ENTMAX_ATTENTION_CURVES_INL_H_
#undef HEDGEROW_KERNELS_ENTMAX_ATTENTION_CURVES_INL_H_
#else
#define HEDGEROW_KERNELS_ENTMAX_ATTENTION_CURVES_INL_H_
#endif

#include "kernels/common/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {

// log2(1 + f) / f on [-1/4, 1/2]: degree-8 minimax, relative error 2.7e-8.
HWY_INLINE FloatVec log2_ratio(FloatVec f) {
  const FloatTag d;
  FloatVec p = hn::Set(d, 0.0780666694f);
  p = hn::MulAdd(p, f, hn::Set(d, -0.174230173f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.216324866f));
  p = hn::MulAdd(p, f, hn::Set(d, -0.242723525f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.288191497f));
  p = hn::MulAdd(p, f, hn::Set(d, -0.360575914f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.480902076f));
  p = hn::MulAdd(p, f, hn::Set(d, -0.721348464f));
  return hn::MulAdd(p, f, hn::Set(d, 1.44269502f));
}

// log2(1 + x) within 3 ULP for x > -1 whose 1 + x is normal; any value elsewhere.
HWY_INLINE FloatVec log2_1p_vec(FloatVec x) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const FloatVec one = hn::Set(d, 1.0f);
  const auto bits = hn::BitCast(di, hn::Add(one, x));
  const auto power = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f400000)));  // of 3/4
  const FloatVec mantissa = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(power)));
  const FloatVec n = hn::ConvertTo(d, power);
  // where 1 + x is near 1, x itself: its sum with 1 was rounded
  const FloatVec f = hn::IfThenElse(hn::Eq(n, hn::Zero(d)), x, hn::Sub(mantissa, one));
  return hn::MulAdd(log2_ratio(f), f, n);
}

// log2(p) within 3 ULP for normal p; -126 of smaller ones.
HWY_INLINE FloatVec log2_vec(FloatVec p) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const auto bits = hn::BitCast(di, hn::Max(p, hn::Set(d, 0x1p-126f)));
  const auto power = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f400000)));
  const FloatVec mantissa = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(power)));
  const FloatVec f = hn::Sub(mantissa, hn::Set(d, 1.0f));
  return hn::MulAdd(log2_ratio(f), f, hn::ConvertTo(d, power));
}

// Newton's step of lambda on (sum p)^e = 1, for the logarithm l of sum p and slope = sum s / sum p:
// (1 - exp(-e l)) / (e slope). It never passes the root from the left, since the norm is convex.
HWY_INLINE float newton_step(float e, float l, float slope) {
  const float t = e * l;
  if (std::fabs(t) < 0.05f) {
    return l * (1.0f - t * (0.5f - t * (1.0f / 6 - t * (1.0f / 24)))) / slope;
  }
  return (1.0f - std::exp(-t)) / (e * slope);
}

// What is common to all curves. step() is Newton's for sums p and s; a row is solved when a step is
// within kTolerance, since finish() makes the weights at lambda + step of s and u at lambda
// (a step back, which is rounding, adds nothing to the support).
struct SoftmaxCurve {  // alpha = 1
  static constexpr float kTolerance = 1e-3f;
  explicit SoftmaxCurve(double) {}
  static constexpr bool kEverywhere = true;  // every score is supported
  float width() const { return std::numeric_limits<float>::infinity(); }
  HWY_INLINE void evaluate(FloatVec w, FloatVec& s, FloatVec& u) const {
    s = exp_vec(w);
    u = hn::Set(FloatTag(), 1.0f);
  }
  HWY_INLINE float step(float p, float) const { return std::log(p); }
  HWY_INLINE FloatVec finish(FloatVec s, FloatVec, float step) const {
    return hn::Mul(s, hn::Set(FloatTag(), std::exp(-step)));
  }
  float largest_shift(float n) const { return std::log(n); }
};

struct SquareCurve {  // alpha = 1.5
  static constexpr float kTolerance = 3e-4f;
  explicit SquareCurve(double) {}
  static constexpr bool kEverywhere = false;
  float width() const { return 2.0f; }
  HWY_INLINE void evaluate(FloatVec w, FloatVec& s, FloatVec& u) const {
    const FloatTag d;
    u = hn::Max(hn::MulAdd(w, hn::Set(d, 0.5f), hn::Set(d, 1.0f)), hn::Zero(d));
    s = u;
  }
  HWY_INLINE float step(float p, float s) const {
    const float norm = std::sqrt(p);
    return 2.0f * (norm - 1.0f) * norm / s;
  }
  HWY_INLINE FloatVec finish(FloatVec, FloatVec u, float step) const {
    const FloatTag d;
    const FloatVec v = hn::Max(hn::Sub(u, hn::Set(d, 0.5f * step)), hn::Zero(d));
    return hn::IfThenElseZero(hn::Gt(u, hn::Zero(d)), hn::Mul(v, v));
  }
  float largest_shift(float n) const { return 2.0f * (1.0f - 1.0f / std::sqrt(n)); }
};

struct LinearCurve {  // alpha = 2
  static constexpr float kTolerance = 1e-6f;
  explicit LinearCurve(double) {}
  static constexpr bool kEverywhere = false;
  float width() const { return 1.0f; }
  HWY_INLINE void evaluate(FloatVec w, FloatVec& s, FloatVec& u) const {
    const FloatTag d;
    const FloatVec one = hn::Set(d, 1.0f);
    u = hn::Max(hn::Add(w, one), hn::Zero(d));
    s = hn::IfThenElseZero(hn::Gt(u, hn::Zero(d)), one);
  }
  HWY_INLINE float step(float p, float s) const { return (p - 1.0f) / s; }
  HWY_INLINE FloatVec finish(FloatVec, FloatVec u, float step) const {
    const FloatTag d;
    const FloatVec p = hn::Max(hn::Sub(u, hn::Set(d, step)), hn::Zero(d));
    return hn::IfThenElseZero(hn::Gt(u, hn::Zero(d)), p);
  }
  float largest_shift(float n) const { return 1.0f - 1.0f / n; }
};

struct PowerCurve {  // any alpha in (1, 2)
  static constexpr float kTolerance = 2e-5f;
  explicit PowerCurve(double e)
      : e_(static_cast<float>(e)),
        inverse_(static_cast<float>(1.0 / e)),
        power_(static_cast<float>(1.0 / e - 1.0)) {}
  static constexpr bool kEverywhere = false;
  float width() const { return inverse_; }
  HWY_INLINE void evaluate(FloatVec w, FloatVec& s, FloatVec& u) const {
    const FloatTag d;
    const FloatVec x = hn::Mul(w, hn::Set(d, e_));
    const FloatVec sum = hn::Add(x, hn::Set(d, 1.0f));
    const auto inside = hn::Gt(sum, hn::Zero(d));
    u = hn::IfThenElseZero(inside, sum);
    s = exp2_vec(hn::Mul(log2_1p_vec(x), hn::Set(d, power_)));
    s = hn::IfThenElseZero(inside, s);
  }
  HWY_INLINE float step(float p, float s) const { return newton_step(e_, std::log(p), s / p); }
  HWY_INLINE FloatVec finish(FloatVec s, FloatVec u, float step) const {
    const FloatTag d;
    return hn::Max(hn::Mul(s, hn::Sub(u, hn::Set(d, step))), hn::Zero(d));
  }
  float largest_shift(float n) const { return newton_step(e_, std::log(n), 1.0f); }

 private:
  float e_, inverse_, power_;
};

// f(curve) for alpha = 1 + e <= 2.
template <class F>
HWY_INLINE void with_curve(double e, F f) {
  if (e == 1) return f(LinearCurve(e));
  if (e == 0.5) return f(SquareCurve(e));
  if (e == 0) return f(SoftmaxCurve(e));
  f(PowerCurve(e));
}

// A score below all that can be supported when lambda - max >= shift, with room for rounding; -inf
// is excluded, whatever the width of the support.
HWY_INLINE float lowest_candidate(float max, float shift, float width) {
  const float least = max + shift - width - 2e-6f * (std::fabs(max) + shift + width);
  const bool finite = least >= -std::numeric_limits<float>::max();  // not so of NaN
  return finite ? least : -std::numeric_limits<float>::infinity();
}

// Scores z[0 .. n), n a multiple of the lanes (-inf beyond the row's end), `max` the largest;
// shift is lambda - max.
struct RowSums {
  float p, s;
};

// Sums at a shift over every stride-th vector.
template <class Curve>
HWY_INLINE RowSums row_sums(const Curve& curve, const float* HWY_RESTRICT z, int64_t n,
                            int64_t stride, float max, float shift) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  const FloatVec top = hn::Set(d, max), by = hn::Set(d, shift);
  FloatVec sum_p = hn::Zero(d), sum_s = sum_p, s, u;
  for (int64_t i = 0; i < n; i += stride * lanes) {
    curve.evaluate(hn::Sub(hn::Sub(hn::LoadU(d, z + i), top), by), s, u);
    sum_p = hn::MulAdd(s, u, sum_p);
    sum_s = hn::Add(sum_s, s);
  }
  return {reduce_sum(sum_p), reduce_sum(sum_s)};
}

// The same over all vectors, keeping s and u.
template <class Curve>
HWY_INLINE RowSums row_sums_kept(const Curve& curve, const float* HWY_RESTRICT z, int64_t n,
                                 float max, float shift, float* HWY_RESTRICT s_out,
                                 float* HWY_RESTRICT u_out) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  const FloatVec top = hn::Set(d, max), by = hn::Set(d, shift);
  FloatVec sum_p = hn::Zero(d), sum_s = sum_p, s, u;
  for (int64_t i = 0; i < n; i += lanes) {
    curve.evaluate(hn::Sub(hn::Sub(hn::LoadU(d, z + i), top), by), s, u);
    hn::StoreU(s, d, s_out + i);
    hn::StoreU(u, d, u_out + i);
    sum_p = hn::MulAdd(s, u, sum_p);
    sum_s = hn::Add(sum_s, s);
  }
  return {reduce_sum(sum_p), reduce_sum(sum_s)};
}

// Newton's iterations end after about five; the bound only ends rows that hold NaN.
inline constexpr int kMaxNewtonSteps = 60;

// Shift of the whole row from a first guess in [0, largest_shift(n)]; weights to p, which may be z.
// s and u are scratch of n floats.
template <class Curve>
HWY_INLINE float solve_weights(const Curve& curve, const float* z, int64_t n, float max,
                               float shift, float* HWY_RESTRICT s, float* HWY_RESTRICT u,
                               float* p) {
  const FloatTag d;
  float step = 0.0f;
  for (int i = 0; i < kMaxNewtonSteps; i++) {
    shift += step;
    const RowSums sums = row_sums_kept(curve, z, n, max, shift, s, u);
    step = curve.step(sums.p, sums.s);
    if (!(std::fabs(step) > Curve::kTolerance)) break;
  }
  for (int64_t i = 0; i < n; i += float_lanes()) {
    hn::StoreU(curve.finish(hn::LoadU(d, s + i), hn::LoadU(d, u + i), step), d, p + i);
  }
  return shift + step;
}

// A lower bound of the row's shift from some of its scores, z[0 .. n) with the largest among them:
// a subset's threshold lies below the row's, and Newton's steps stay below the subset's.
template <class Curve>
HWY_INLINE float shift_bound(const Curve& curve, const float* HWY_RESTRICT z, int64_t n, float max,
                             int steps) {
  float shift = 0.0f;
  for (int i = 0; i < steps; i++) {
    const RowSums sums = row_sums(curve, z, n, 1, max, shift);
    shift += std::max(curve.step(sums.p, sums.s), 0.0f);
  }
  return shift;
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_ENTMAX_ATTENTION_CURVES_INL_H_
