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

#include "kernels/common/gemm-inl.h"
#include "kernels/common/math-inl.h"
#include "kernels/entmax/attention_internal.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {

inline constexpr float kLn2 = 0.693147181f;

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

// What is common to all curves. step() is Newton's of lambda on (sum p)^e = 1, of sums p and s; it
// never passes the root from the left, since the norm is convex. A row is solved when a step is
// within tolerance(): finish() makes the weights at lambda + step of s and u at lambda (a step back
// is rounding and adds nothing to the support).
struct SoftmaxCurve {  // alpha = 1
  explicit SoftmaxCurve(double) {}
  static constexpr bool kEverywhere = true;  // every score is supported
  float width() const { return std::numeric_limits<float>::infinity(); }
  float tolerance() const { return 1e-3f; }
  HWY_INLINE void evaluate(FloatVec w, FloatVec& s, FloatVec& u) const {
    s = exp_vec(w);
    u = hn::Set(FloatTag(), 1.0f);
  }
  HWY_INLINE FloatVec step(FloatVec p, FloatVec) const {
    return hn::Mul(log2_vec(p), hn::Set(FloatTag(), kLn2));
  }
  HWY_INLINE FloatVec finish(FloatVec s, FloatVec, FloatVec step) const {
    return hn::Mul(s, exp_vec(hn::Neg(step)));
  }
  float largest_shift(float n) const { return std::log(n); }
};

struct SquareCurve {  // alpha = 1.5
  explicit SquareCurve(double) {}
  static constexpr bool kEverywhere = false;
  float width() const { return 2.0f; }
  float tolerance() const { return 3e-4f; }
  HWY_INLINE void evaluate(FloatVec w, FloatVec& s, FloatVec& u) const {
    const FloatTag d;
    u = hn::Max(hn::MulAdd(w, hn::Set(d, 0.5f), hn::Set(d, 1.0f)), hn::Zero(d));
    s = u;
  }
  HWY_INLINE FloatVec step(FloatVec p, FloatVec s) const {
    const FloatVec norm = hn::Sqrt(p);
    const FloatVec excess = hn::Sub(norm, hn::Set(FloatTag(), 1.0f));
    return hn::Div(hn::Mul(hn::Add(excess, excess), norm), s);
  }
  HWY_INLINE FloatVec finish(FloatVec, FloatVec u, FloatVec step) const {
    const FloatTag d;
    const FloatVec v = hn::Max(hn::NegMulAdd(step, hn::Set(d, 0.5f), u), hn::Zero(d));
    return hn::IfThenElseZero(hn::Gt(u, hn::Zero(d)), hn::Mul(v, v));
  }
  float largest_shift(float n) const { return 2.0f * (1.0f - 1.0f / std::sqrt(n)); }
};

struct LinearCurve {  // alpha = 2
  explicit LinearCurve(double) {}
  static constexpr bool kEverywhere = false;
  float width() const { return 1.0f; }
  float tolerance() const { return 1e-6f; }
  HWY_INLINE void evaluate(FloatVec w, FloatVec& s, FloatVec& u) const {
    const FloatTag d;
    const FloatVec one = hn::Set(d, 1.0f);
    u = hn::Max(hn::Add(w, one), hn::Zero(d));
    s = hn::IfThenElseZero(hn::Gt(u, hn::Zero(d)), one);
  }
  HWY_INLINE FloatVec step(FloatVec p, FloatVec s) const {
    return hn::Div(hn::Sub(p, hn::Set(FloatTag(), 1.0f)), s);
  }
  HWY_INLINE FloatVec finish(FloatVec, FloatVec u, FloatVec step) const {
    const FloatTag d;
    const FloatVec p = hn::Max(hn::Sub(u, step), hn::Zero(d));
    return hn::IfThenElseZero(hn::Gt(u, hn::Zero(d)), p);
  }
  float largest_shift(float n) const { return 1.0f - 1.0f / n; }
};

struct PowerCurve {  // any alpha in (1, 2)
  explicit PowerCurve(double e)
      : e_(static_cast<float>(e)),
        inverse_(static_cast<float>(1.0 / e)),
        power_(static_cast<float>(1.0 / e - 1.0)) {}
  static constexpr bool kEverywhere = false;
  float width() const { return inverse_; }
  // What Newton's last step leaves: step^2, but more of it where scores leave the support by it,
  // whose slopes u^(1/e-1) matter the more the nearer e is to 1.
  float tolerance() const { return e_ < 0.3f ? 1e-3f : e_ < 0.6f ? 2e-4f : 2e-5f; }
  HWY_INLINE void evaluate(FloatVec w, FloatVec& s, FloatVec& u) const {
    const FloatTag d;
    const FloatVec x = hn::Mul(w, hn::Set(d, e_));
    const FloatVec sum = hn::Add(x, hn::Set(d, 1.0f));
    const auto inside = hn::Gt(sum, hn::Zero(d));
    u = hn::IfThenElseZero(inside, sum);
    s = exp2_vec(hn::Mul(log2_1p_vec(x), hn::Set(d, power_)));
    s = hn::IfThenElseZero(inside, s);
  }
  // (1 - exp(-e l)) / (e slope), l = log p, slope = s / p
  HWY_INLINE FloatVec step(FloatVec p, FloatVec s) const {
    const FloatTag d;
    const FloatVec one = hn::Set(d, 1.0f);
    const FloatVec l = hn::Mul(log2_vec(p), hn::Set(d, kLn2));
    const FloatVec t = hn::Mul(l, hn::Set(d, e_));
    FloatVec series = hn::NegMulAdd(t, hn::Set(d, 1.0f / 24), hn::Set(d, 1.0f / 6));
    series = hn::NegMulAdd(t, series, hn::Set(d, 0.5f));
    series = hn::Mul(l, hn::NegMulAdd(t, series, one));
    const FloatVec whole = hn::Mul(hn::Sub(one, exp_vec(hn::Neg(t))), hn::Set(d, inverse_));
    const auto small = hn::Lt(hn::Abs(t), hn::Set(d, 0.05f));
    return hn::Div(hn::Mul(hn::IfThenElse(small, series, whole), p), s);
  }
  // (u - e step)^(1/e) = s (u - step + (1 - e) step^2 / 2u - ..); near the threshold as it stands
  HWY_INLINE FloatVec finish(FloatVec s, FloatVec u, FloatVec step) const {
    const FloatTag d;
    const FloatVec zero = hn::Zero(d), far = hn::Mul(hn::Abs(step), hn::Set(d, 8.0f));
    const FloatVec half = hn::Mul(hn::Mul(step, step), hn::Set(d, 0.5f - 0.5f * e_));
    FloatVec p = hn::Mul(s, hn::Add(hn::Sub(u, step), hn::Div(half, u)));
    const FloatVec left = hn::NegMulAdd(step, hn::Set(d, e_), u);
    const auto near = hn::And(hn::Lt(u, far), hn::Gt(u, zero));
    if (!hn::AllFalse(d, near)) {
      const FloatVec direct = exp2_vec(hn::Mul(log2_vec(left), hn::Set(d, inverse_)));
      p = hn::IfThenElse(near, direct, p);
    }
    return hn::IfThenElseZero(hn::And(hn::Gt(left, zero), hn::Gt(s, zero)), p);
  }
  float largest_shift(float n) const {
    const FloatTag d;
    return hn::GetLane(step(hn::Set(d, n), hn::Set(d, n)));
  }

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

// Folds a vector of blocks of 4 into their sum.
#if HWY_TARGET != HWY_SCALAR
template <class D>
HWY_INLINE hn::Vec<hn::FixedTag<float, 4>> fold_blocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return fold_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    return v;
  }
}
#endif

// to[i] = the sum of the lanes of v_i, i < 4.
HWY_INLINE void store_sums(FloatVec v0, FloatVec v1, FloatVec v2, FloatVec v3,
                           float* HWY_RESTRICT to) {
#if HWY_TARGET == HWY_SCALAR
  to[0] = reduce_sum(v0);
  to[1] = reduce_sum(v1);
  to[2] = reduce_sum(v2);
  to[3] = reduce_sum(v3);
#else
  const FloatTag d;
  const hn::RepartitionToWide<FloatTag> dd;
  const auto a = hn::Add(hn::InterleaveLower(d, v0, v1), hn::InterleaveUpper(d, v0, v1));
  const auto b = hn::Add(hn::InterleaveLower(d, v2, v3), hn::InterleaveUpper(d, v2, v3));
  const auto wa = hn::BitCast(dd, a), wb = hn::BitCast(dd, b);
  const auto sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(dd, wa, wb)),
                            hn::BitCast(d, hn::InterleaveUpper(dd, wa, wb)));
  hn::StoreU(fold_blocks(d, sums), hn::FixedTag<float, 4>(), to);
#endif
}

// Sums of weights p and slopes s.
struct RowSums {
  float p, s;
};

// Sums over every stride-th vector of scores z[0 .. n), n a multiple of the lanes (-inf beyond the
// row's end), at lambda = max + shift; kept in s_out and u_out unless those are nullptr.
template <class Curve>
HWY_INLINE RowSums row_sums(const Curve& curve, const float* z, int64_t n, int64_t stride,
                            float max, float shift, float* HWY_RESTRICT s_out = nullptr,
                            float* HWY_RESTRICT u_out = nullptr) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  const FloatVec top = hn::Set(d, max), by = hn::Set(d, shift);
  FloatVec sum_p = hn::Zero(d), sum_s = sum_p, s, u;
  for (int64_t i = 0; i < n; i += stride * lanes) {
    curve.evaluate(hn::Sub(hn::Sub(hn::LoadU(d, z + i), top), by), s, u);
    if (s_out != nullptr) {
      hn::StoreU(s, d, s_out + i);
      hn::StoreU(u, d, u_out + i);
    }
    sum_p = hn::MulAdd(s, u, sum_p);
    sum_s = hn::Add(sum_s, s);
  }
  return {reduce_sum(sum_p), reduce_sum(sum_s)};
}

template <class Curve>
HWY_INLINE float row_step(const Curve& curve, RowSums sums, float times = 1.0f) {
  const FloatTag d;
  return hn::GetLane(curve.step(hn::Set(d, sums.p * times), hn::Set(d, sums.s * times)));
}

// Newton's iterations end after about five; the bound only ends rows that hold NaN.
inline constexpr int kMaxNewtonSteps = 60;

// lambda - max of a whole row from a first guess in [0, largest_shift(n)]; weights to p, which may
// be z. s and u are scratch of n floats.
template <class Curve>
HWY_INLINE float solve_row(const Curve& curve, const float* z, int64_t n, float max, float shift,
                           float* HWY_RESTRICT s, float* HWY_RESTRICT u, float* p) {
  const FloatTag d;
  float step = 0.0f;
  for (int i = 0; i < kMaxNewtonSteps; i++) {
    shift += step;
    step = row_step(curve, row_sums(curve, z, n, 1, max, shift, s, u));
    if (!(std::fabs(step) > curve.tolerance())) break;
  }
  const FloatVec last = hn::Set(d, step);
  for (int64_t i = 0; i < n; i += float_lanes()) {
    hn::StoreU(curve.finish(hn::LoadU(d, s + i), hn::LoadU(d, u + i), last), d, p + i);
  }
  return shift + step;
}

// Newton's steps of kGroup rows, whose latencies overlap, from their sums.
template <class Curve>
HWY_INLINE void group_steps(const Curve& curve, const FloatVec (&p)[kGroup],
                            const FloatVec (&s)[kGroup], float* HWY_RESTRICT steps) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0f);
  HWY_ALIGN float sum_p[HWY_MAX(kGroup, hn::MaxLanes(d))], sum_s[HWY_MAX(kGroup, hn::MaxLanes(d))];
  hn::Store(one, d, sum_p);  // beyond the group
  hn::Store(one, d, sum_s);
  store_sums(p[0], p[1], p[2], p[3], sum_p);
  store_sums(s[0], s[1], s[2], s[3], sum_s);
  for (int64_t i = 0; i < kGroup; i += float_lanes()) {
    hn::StoreU(curve.step(hn::LoadU(d, sum_p + i), hn::LoadU(d, sum_s + i)), d, steps + i);
  }
}
// Floats that group_steps may write.
inline constexpr int64_t kSteps = HWY_MAX(kGroup, hn::MaxLanes(FloatTag()));

// Lower bounds of lambda - max of kGroup rows from some of their scores, z[row][0 .. n) with the
// largest among them: a subset's threshold lies below the row's, and Newton's steps below that.
template <class Curve>
HWY_INLINE void group_bounds(const Curve& curve, const float* HWY_RESTRICT z, int64_t n,
                             const float* max, int num_steps, float* HWY_RESTRICT shifts) {
  const FloatTag d;
  HWY_ALIGN float steps[kSteps];
  std::fill(shifts, shifts + kGroup, 0.0f);
  for (int k = 0; k < num_steps; k++) {
    FloatVec p[kGroup], s[kGroup];
    HEDGEROW_UNROLL
    for (int r = 0; r < kGroup; r++) {
      const FloatVec top = hn::Set(d, max[r]), by = hn::Set(d, shifts[r]);
      FloatVec si, ui;
      p[r] = s[r] = hn::Zero(d);
      for (int64_t i = 0; i < n; i += float_lanes()) {
        curve.evaluate(hn::Sub(hn::Sub(hn::LoadU(d, z + r * n + i), top), by), si, ui);
        p[r] = hn::MulAdd(si, ui, p[r]);
        s[r] = hn::Add(s[r], si);
      }
    }
    group_steps(curve, p, s, steps);
    for (int64_t r = 0; r < kGroup; r++) shifts[r] += std::max(steps[r], 0.0f);
  }
}

// Lists of kGroup rows, [row][stride] of n entries (a multiple of the lanes; -inf beyond a list's
// end) relative to the rows' maxima; the first `rows` are solved from lower bounds in shifts, which
// become lambda - max; weights to p. s and u are scratch.
template <class Curve>
HWY_INLINE void solve_group(const Curve& curve, const float* HWY_RESTRICT y, int64_t n,
                            int64_t stride, int64_t rows, float* HWY_RESTRICT shifts,
                            float* HWY_RESTRICT s, float* HWY_RESTRICT u, float* HWY_RESTRICT p) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  HWY_ALIGN float steps[kSteps] = {};
  for (int k = 0; k < kMaxNewtonSteps; k++) {
    FloatVec sum_p[kGroup], sum_s[kGroup], by[kGroup];
    HEDGEROW_UNROLL
    for (int r = 0; r < kGroup; r++) {
      shifts[r] += steps[r];
      by[r] = hn::Set(d, shifts[r]);
      sum_p[r] = sum_s[r] = hn::Zero(d);
    }
    for (int64_t i = 0; i < n; i += lanes) {
      HEDGEROW_UNROLL
      for (int r = 0; r < kGroup; r++) {
        FloatVec si, ui;
        curve.evaluate(hn::Sub(hn::LoadU(d, y + r * stride + i), by[r]), si, ui);
        hn::StoreU(si, d, s + r * stride + i);
        hn::StoreU(ui, d, u + r * stride + i);
        sum_p[r] = hn::MulAdd(si, ui, sum_p[r]);
        sum_s[r] = hn::Add(sum_s[r], si);
      }
    }
    group_steps(curve, sum_p, sum_s, steps);
    bool more = false;
    for (int64_t r = 0; r < rows; r++) more |= std::fabs(steps[r]) > curve.tolerance();
    if (!more) break;
  }
  for (int64_t r = 0; r < rows; r++) {
    const FloatVec step = hn::Set(d, steps[r]);
    for (int64_t i = r * stride; i < r * stride + n; i += lanes) {
      hn::StoreU(curve.finish(hn::LoadU(d, s + i), hn::LoadU(d, u + i), step), d, p + i);
    }
    shifts[r] += steps[r];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_ENTMAX_ATTENTION_CURVES_INL_H_
