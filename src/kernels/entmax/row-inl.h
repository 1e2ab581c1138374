// Vector code of one entmax row with alpha in [1, 2]: logarithms, weights from a threshold, and the
// search for the threshold. Include after hwy/foreach_target.h.
//
// Entries are taken relative to the row's maximum, d = z - max <= 0, and the threshold is
// shift = lambda - max in double, which enters in two floats: a threshold rounded to one float
// moves the sum of a long row by 1e-4. With e = alpha - 1 and q = 1 - e shift = p_max^e,
// p = (e d + q)^(1/e).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_ENTMAX_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_ENTMAX_ROW_INL_H_
#undef HEDGEROW_KERNELS_ENTMAX_ROW_INL_H_
#else
#define HEDGEROW_KERNELS_ENTMAX_ROW_INL_H_
#endif

#include "kernels/common/math-inl.h"
#include "kernels/entmax/entmax_math.h"

// Functors of loops over vectors: part of the loop, not calls.
#undef HEDGEROW_ROW_FUNCTOR
#define HEDGEROW_ROW_FUNCTOR HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels::entmax {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::exp_vec;
using kernels::HWY_NAMESPACE::float_lanes;
using kernels::HWY_NAMESPACE::FloatTag;
using kernels::HWY_NAMESPACE::FloatVec;
using kernels::HWY_NAMESPACE::reduce_max;
using kernels::HWY_NAMESPACE::reduce_sum;

inline constexpr float kLowest = -std::numeric_limits<float>::infinity();
// Below this e weights go through log1p; above it 1 / e magnifies no rounding error worth a word.
inline constexpr float kPowerForm = 0.25f;

// The first n < float_lanes() floats at x, the rest `fill`.
HWY_INLINE FloatVec load_tail(const float* x, int64_t n, float fill) {
  HWY_ALIGN float lanes[HWY_LANES(float)];
  for (int64_t i = 0; i < float_lanes(); i++) lanes[i] = i < n ? x[i] : fill;
  return hn::Load(FloatTag(), lanes);
}
HWY_INLINE void store_tail(FloatVec v, float* x, int64_t n) {
  HWY_ALIGN float lanes[HWY_LANES(float)];
  hn::Store(v, FloatTag(), lanes);
  std::memcpy(x, lanes, static_cast<size_t>(n) * sizeof(float));
}

// log(x) + extra for normal x > 0 and small extra, within 3 ULP.
// x = 2^k (1 + f), f from sqrt(1/2) - 1 to sqrt(2) - 1; near-minimax of
// (log(1 + f) - f + f^2/2) / f^3, relative error of the logarithm 2e-8.
HWY_INLINE FloatVec log_vec(FloatVec x, FloatVec extra) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const auto bits = hn::BitCast(di, x);
  const auto power = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));
  const FloatVec k = hn::ConvertTo(d, power);
  const FloatVec f =
      hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(power))), hn::Set(d, 1.0f));
  FloatVec p = hn::Set(d, -0.0790274377f);
  p = hn::MulAdd(p, f, hn::Set(d, 0.126223198f));
  p = hn::MulAdd(p, f, hn::Set(d, -0.129981838f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.142144959f));
  p = hn::MulAdd(p, f, hn::Set(d, -0.166412815f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.200010451f));
  p = hn::MulAdd(p, f, hn::Set(d, -0.250003064f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.333333307f));
  const FloatVec f2 = hn::Mul(f, f);
  FloatVec r = hn::MulAdd(hn::Mul(f2, f), p, hn::MulAdd(k, hn::Set(d, -2.12194440e-4f), extra));
  r = hn::NegMulAdd(f2, hn::Set(d, 0.5f), r);
  return hn::MulAdd(k, hn::Set(d, 0.693359375f), hn::Add(f, r));
}
HWY_INLINE FloatVec log_vec(FloatVec x) { return log_vec(x, hn::Zero(FloatTag())); }

// A weight p and s = p^(1-e) = -dp/dshift; both 0 off the support.
struct Weights {
  FloatVec p, s;
};

// t = e d + q of the two forms without logarithms.
class Linear {
 public:
  Linear(float e, double shift) {
    const FloatTag d;
    const double q = 1.0 - static_cast<double>(e) * shift;
    e_ = hn::Set(d, e);
    high_ = hn::Set(d, static_cast<float>(q));
    low_ = hn::Set(d, static_cast<float>(q - static_cast<float>(q)));
  }
  HWY_INLINE FloatVec operator()(FloatVec x) const {
    return hn::Add(hn::MulAdd(e_, x, high_), low_);
  }

 private:
  FloatVec e_, high_, low_;
};

// alpha = 2.
class SparsemaxForm {
 public:
  static constexpr bool kCheap = true;
  SparsemaxForm(float e, double shift) : t_(e, shift) {}
  HWY_INLINE FloatVec weight(FloatVec x) const { return hn::Max(t_(x), hn::Zero(FloatTag())); }
  HWY_INLINE Weights weights(FloatVec x) const {
    const FloatTag d;
    const FloatVec p = weight(x);
    return {p, hn::IfThenElseZero(hn::Gt(p, hn::Zero(d)), hn::Set(d, 1.0f))};
  }

 private:
  Linear t_;
};

// alpha = 1.5.
class RootForm {
 public:
  static constexpr bool kCheap = true;
  RootForm(float e, double shift) : t_(e, shift) {}
  HWY_INLINE FloatVec weight(FloatVec x) const {
    const FloatVec s = hn::Max(t_(x), hn::Zero(FloatTag()));
    return hn::Mul(s, s);
  }
  HWY_INLINE Weights weights(FloatVec x) const {
    const FloatVec s = hn::Max(t_(x), hn::Zero(FloatTag()));
    return {hn::Mul(s, s), s};
  }

 private:
  Linear t_;
};

// The other forms take weights relative to the largest, M = q^(1/e): with y = d e / q <= 0,
// p / M = (1 + y)^(1/e), so that the entries that matter most have the smallest logarithms.
class Relative {
 public:
  Relative(float e, double shift) {
    const FloatTag d;
    const double q = 1.0 - static_cast<double>(e) * shift, slope = e / q;
    p_scale = std::exp(std::log1p(-static_cast<double>(e) * shift) / e);
    s_scale = p_scale / q;
    high_ = hn::Set(d, static_cast<float>(slope));
    low_ = hn::Set(d, static_cast<float>(slope - static_cast<float>(slope)));
    inv_e_ = hn::Set(d, 1.0f / e);
    scale_ = hn::Set(d, static_cast<float>(p_scale));
  }
  double p_scale, s_scale;  // of the sums of weights()

 protected:
  HWY_INLINE FloatVec add_y(FloatVec x, FloatVec to) const {
    return hn::MulAdd(x, low_, hn::MulAdd(x, high_, to));
  }
  FloatVec high_, low_, inv_e_, scale_;
};

// e in [1/4, 1).
class PowerForm : public Relative {
 public:
  static constexpr bool kCheap = false;
  PowerForm(float e, double shift) : Relative(e, shift) {}
  HWY_INLINE FloatVec weight(FloatVec x) const { return hn::Mul(weights(x).p, scale_); }
  HWY_INLINE Weights weights(FloatVec x) const {
    const FloatTag d;
    const FloatVec tiny = hn::Set(d, kTiny), u = add_y(x, hn::Set(d, 1.0f));
    const auto inside = hn::Gt(u, tiny);
    const FloatVec t = hn::Max(u, tiny);
    const FloatVec p = hn::IfThenElseZero(inside, exp_vec(hn::Mul(log_vec(t), inv_e_)));
    return {p, hn::Div(p, t)};
  }
  HWY_INLINE bool any(FloatVec x) const {
    const FloatTag d;
    return !hn::AllFalse(d, hn::Gt(add_y(x, hn::Set(d, 1.0f)), hn::Set(d, kTiny)));
  }

 private:
  static constexpr float kTiny = 1.17549435e-38f;  // weights of smaller u are below it
};

// e in (0, 1/4).
class LogForm : public Relative {
 public:
  static constexpr bool kCheap = false;
  LogForm(float e, double shift) : Relative(e, shift), lowest_(hn::Set(FloatTag(), lowest(e))) {}
  HWY_INLINE FloatVec weight(FloatVec x) const { return hn::Mul(weights(x).p, scale_); }
  HWY_INLINE Weights weights(FloatVec x) const {
    const FloatTag d;
    const FloatVec one = hn::Set(d, 1.0f), y = add_y(x, hn::Zero(d));
    const auto inside = hn::Gt(y, hn::Set(d, -1.0f));
    // log1p(y) = log(u) + (y - (u - 1)) / u with u = 1 + y rounded
    const FloatVec u = hn::IfThenElse(inside, hn::Add(y, one), one);
    const FloatVec inverse = hn::Div(one, u);
    const FloatVec rest = hn::Mul(hn::Sub(y, hn::Sub(u, one)), inverse);
    const FloatVec p = hn::IfThenElseZero(inside, exp_vec(hn::Mul(log_vec(u, rest), inv_e_)));
    return {p, hn::Mul(p, inverse)};
  }
  HWY_INLINE bool any(FloatVec x) const {
    const FloatTag d;
    return !hn::AllFalse(d, hn::Gt(x, lowest_));
  }
  // d of any supported entry is larger: p <= exp(d).
  static float lowest(float e) { return std::max(-1.000002f / e, -105.0f); }

 private:
  FloatVec lowest_;
};

// sum p, sum s and the size of the support over a list.
struct Sums {
  double p = 0, s = 0, count = 0;
};

// Over list[0 .. n), n a multiple of float_lanes(). Float sums of at most 16 vectors in four
// chains, the rest in double: equal terms would drift in longer float sums.
template <class Form>
HWY_INLINE Sums sum_weights(const float* HWY_RESTRICT list, int64_t n, const Form& form) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  const FloatVec zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  Sums sums;
  for (int64_t i = 0; i < n;) {
    FloatVec p[4] = {zero, zero, zero, zero}, s[4] = {zero, zero, zero, zero}, count = zero;
    const int64_t end = HWY_MIN(n, i + 16 * lanes);
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) {
        const Weights w = form.weights(hn::LoadU(d, list + i + j * lanes));
        p[j] = hn::Add(p[j], w.p);
        s[j] = hn::Add(s[j], w.s);
        if (Form::kCheap) count = hn::Add(count, hn::IfThenElseZero(hn::Gt(w.s, zero), one));
      }
    }
    for (; i < end; i += lanes) {
      const Weights w = form.weights(hn::LoadU(d, list + i));
      p[0] = hn::Add(p[0], w.p);
      s[0] = hn::Add(s[0], w.s);
      if (Form::kCheap) count = hn::Add(count, hn::IfThenElseZero(hn::Gt(w.s, zero), one));
    }
    sums.p += reduce_sum(hn::Add(hn::Add(p[0], p[1]), hn::Add(p[2], p[3])));
    sums.s += reduce_sum(hn::Add(hn::Add(s[0], s[1]), hn::Add(s[2], s[3])));
    if (Form::kCheap) sums.count += reduce_sum(count);
  }
  if constexpr (!Form::kCheap) {
    sums.p *= form.p_scale;
    sums.s *= form.s_scale;
  }
  return sums;
}

// Newton's step of the threshold on (sum p)^e, a convex function: from the left of the root it does
// not pass it.
HWY_INLINE double newton_step(const Sums& sums, double e) {
  if (e == 1) return (sums.p - 1) / sums.s;
  if (e == 0.5) return 2 * (sums.p - std::sqrt(sums.p)) / sums.s;
  return -std::expm1(-e * std::log(sums.p)) / e * sums.p / sums.s;
}

// The step to the root for a support that does not change, where that has a closed form.
HWY_INLINE double threshold_step(const Sums& sums, double e) {
  if (e == 0.5) {  // sum (t - x)^2 = 1 with x = e * step
    const double gap = sums.p - 1, square = sums.s * sums.s - sums.count * gap;
    if (square >= 0) return 2 * gap / (sums.s + std::sqrt(square));
  }
  return newton_step(sums, e);
}

// A shift at or left of that of any row that contains the list, whose largest entry is 0.
template <class Form>
HWY_INLINE double lower_bound(const float* HWY_RESTRICT list, int64_t n, float e) {
  double shift = 0;
  for (int step = 0; step < 3; step++) {
    const double move = newton_step(sum_weights(list, n, Form(e, shift)), e);
    shift = std::max(0.0, shift + move);
    if (std::fabs(move) < 1e-3) break;
  }
  return shift;
}

// shift of a list of n entries (padded with -inf to whole vectors) whose largest is 0, from a start
// that may be any lower bound.
template <class Form>
HWY_INLINE double solve_list(const float* HWY_RESTRICT list, int64_t n, float e, double start) {
  // Newton's next error is far below the square of this one where weights are smooth in the
  // threshold; where they are not (e near 1), entries leave the support within a step.
  const double tolerance = e < 0.5f ? 1e-5 : 3e-7;
  double low = 0, high = -std::expm1(-e * std::log(static_cast<double>(n))) / e + 1e-9;
  double shift = start;
  for (int step = 0; step < kMaxSteps; step++) {
    const Sums sums = sum_weights(list, n, Form(e, shift));
    (sums.p >= 1 ? low : high) = shift;
    double next = shift + threshold_step(sums, e);
    if (std::fabs(sums.p - 1) <= tolerance) return next;
    if (!(next > low && next < high)) next = 0.5 * (low + high);
    if (next == shift) break;
    shift = next;
  }
  return shift;
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels::entmax
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_ENTMAX_ROW_INL_H_
