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
using kernels::HWY_NAMESPACE::reciprocal_vec;
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
  FloatVec r = hn::MulAdd(hn::Mul(f2, f), p, extra);
  r = hn::NegMulAdd(f2, hn::Set(d, 0.5f), r);
  return hn::MulAdd(k, hn::Set(d, 0.693147181f), hn::Add(f, r));  // no cancellation: |f| < 0.42
}
HWY_INLINE FloatVec log_vec(FloatVec x) { return log_vec(x, hn::Zero(FloatTag())); }

// 1 / x within 2 ULP, x and 1 / x normal.
HWY_INLINE FloatVec inverse_vec(FloatVec x) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  const FloatVec r = hn::ApproximateReciprocal(x);  // to 14 bits
  return hn::MulAdd(r, hn::NegMulAdd(x, r, hn::Set(FloatTag(), 1.0f)), r);
#else
  return reciprocal_vec(x);
#endif
}

// Of one entry, up to a constant of the row: p, s = p^(1-e) and v = p^(1-2e); 0 off the support.
struct Weights {
  FloatVec p, s, v;
};

// Sums of Weights over a list.
struct Sums {
  double p = 0, s = 0, v = 0;
};

// Where the search for the threshold stands, per form. gap: log(sum p), or sum p - 1 for the forms
// without logarithms. fast(): the closed form for a support that does not change (alpha = 2, 1.5),
// or Halley's step on log(sum p). newton(): the step on (sum p)^e, a convex function, which does
// not pass the root to the right.
struct SparsemaxPosition {
  SparsemaxPosition(const Sums& sums, double, double, double) : gap(sums.p - 1), s(sums.s) {}
  double newton() const { return gap / s; }
  double fast() const { return gap / s; }
  double gap, s;
};
struct RootPosition {
  RootPosition(const Sums& sums, double, double, double) : gap(sums.p - 1), sums(sums) {}
  double newton() const { return 2 * (sums.p - std::sqrt(sums.p)) / sums.s; }
  double fast() const {  // sum (t - x)^2 = 1 with x = e * step
    const double square = sums.s * sums.s - sums.v * gap;
    return square < 0 ? newton() : 2 * gap / (sums.s + std::sqrt(square));
  }
  double gap;
  Sums sums;
};
// p, s and v of the sums lack q^(1/e), q^(1/e - 1) and q^(1/e - 2).
struct CurvePosition {
  CurvePosition(const Sums& sums, double e, double shift, double share) : e(e) {
    const double q = 1 - e * shift, inv_p = 1 / sums.p;
    gap = std::log1p(-e * shift) / e + std::log(sums.p * share);
    slope = sums.s * inv_p / q;
    curve = (1 - e) * sums.v * inv_p / (q * q) - slope * slope;
  }
  double newton() const { return -std::expm1(-e * gap) / (e * slope); }
  double fast() const {
    const double below = 2 * slope * slope - gap * curve;
    return below > 0 ? 2 * gap * slope / below : newton();
  }
  double e, gap, slope, curve;  // minus the derivative of gap, its second derivative
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
  using Position = SparsemaxPosition;
  static constexpr bool kCheap = true, kCurved = false;
  SparsemaxForm(float e, double shift, bool = false) : t_(e, shift) {}
  HWY_INLINE FloatVec weight(FloatVec x) const { return hn::Max(t_(x), hn::Zero(FloatTag())); }
  HWY_INLINE Weights weights(FloatVec x) const {
    const FloatTag d;
    const FloatVec p = weight(x);
    return {p, hn::IfThenElseZero(hn::Gt(p, hn::Zero(d)), hn::Set(d, 1.0f)), hn::Zero(d)};
  }

 private:
  Linear t_;
};

// alpha = 1.5.
class RootForm {
 public:
  using Position = RootPosition;
  static constexpr bool kCheap = true, kCurved = true;
  RootForm(float e, double shift, bool = false) : t_(e, shift) {}
  HWY_INLINE FloatVec weight(FloatVec x) const {
    const FloatVec s = hn::Max(t_(x), hn::Zero(FloatTag()));
    return hn::Mul(s, s);
  }
  HWY_INLINE Weights weights(FloatVec x) const {
    const FloatTag d;
    const FloatVec s = hn::Max(t_(x), hn::Zero(d));
    return {hn::Mul(s, s), s, hn::IfThenElseZero(hn::Gt(s, hn::Zero(d)), hn::Set(d, 1.0f))};
  }

 private:
  Linear t_;
};

// The other forms take weights relative to the largest, M = q^(1/e): with y = d e / q <= 0,
// p / M = (1 + y)^(1/e), so that the entries that matter most have the smallest logarithms.
class Relative {
 public:
  using Position = CurvePosition;
  // weight() gives p where `scaled`, else p / M.
  Relative(float e, double shift, bool scaled) {
    const FloatTag d;
    const double slope = e / (1.0 - static_cast<double>(e) * shift);
    high_ = hn::Set(d, static_cast<float>(slope));
    low_ = hn::Set(d, static_cast<float>(slope - static_cast<float>(slope)));
    inv_e_ = hn::Set(d, 1.0f / e);
    scale_ = hn::Set(d, 1.0f);
    if (!scaled) return;
    const double log_max = std::log1p(-static_cast<double>(e) * shift) / e;
    scale_ = hn::Set(d, static_cast<float>(std::exp(log_max)));
  }

 protected:
  HWY_INLINE FloatVec add_y(FloatVec x, FloatVec to) const {
    return hn::MulAdd(x, low_, hn::MulAdd(x, high_, to));
  }
  FloatVec high_, low_, inv_e_, scale_;
};

// e in [1/4, 1).
class PowerForm : public Relative {
 public:
  static constexpr bool kCheap = false, kCurved = true;
  PowerForm(float e, double shift, bool scaled = false) : Relative(e, shift, scaled) {}
  HWY_INLINE FloatVec weight(FloatVec x) const { return hn::Mul(weights(x).p, scale_); }
  HWY_INLINE Weights weights(FloatVec x) const {
    const FloatTag d;
    const FloatVec tiny = hn::Set(d, kTiny), u = add_y(x, hn::Set(d, 1.0f));
    const auto inside = hn::Gt(u, tiny);
    const FloatVec t = hn::Max(u, tiny);
    const FloatVec p = hn::IfThenElseZero(inside, exp_vec(hn::Mul(log_vec(t), inv_e_)));
    const FloatVec inverse = inverse_vec(t), s = hn::Mul(p, inverse);
    return {p, s, hn::Mul(s, inverse)};
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
  static constexpr bool kCheap = false, kCurved = true;
  LogForm(float e, double shift, bool scaled = false) : Relative(e, shift, scaled) {}
  HWY_INLINE FloatVec weight(FloatVec x) const { return hn::Mul(weights(x).p, scale_); }
  HWY_INLINE Weights weights(FloatVec x) const {
    const FloatTag d;
    const FloatVec one = hn::Set(d, 1.0f), y = add_y(x, hn::Zero(d));
    const auto inside = hn::Gt(y, hn::Set(d, -1.0f));
    // log1p(y) = log(u) + (y - (u - 1)) / u with u = 1 + y rounded
    const FloatVec u = hn::IfThenElse(inside, hn::Add(y, one), one);
    const FloatVec inverse = inverse_vec(u);
    const FloatVec rest = hn::Mul(hn::Sub(y, hn::Sub(u, one)), inverse);
    const FloatVec p = hn::IfThenElseZero(inside, exp_vec(hn::Mul(log_vec(u, rest), inv_e_)));
    const FloatVec s = hn::Mul(p, inverse);
    return {p, s, hn::Mul(s, inverse)};
  }
  HWY_INLINE bool any(FloatVec x) const {
    const FloatTag d;
    return !hn::AllFalse(d, hn::Gt(add_y(x, hn::Zero(d)), hn::Set(d, -1.0f)));
  }
};

// Over every stride-th vector of list[0 .. n), n a multiple of float_lanes(). Float sums of at most
// 16 vectors in four chains, the rest in double: equal terms would drift in longer float sums.
template <class Form>
HWY_INLINE Sums sum_weights(const float* HWY_RESTRICT list, int64_t n, const Form& form,
                            int64_t stride = 1) {
  const FloatTag d;
  const int64_t step = stride * float_lanes();
  const FloatVec zero = hn::Zero(d);
  Sums sums;
  for (int64_t i = 0; i < n;) {
    FloatVec p[4] = {zero, zero, zero, zero}, s[4] = {zero, zero, zero, zero};
    FloatVec v[4] = {zero, zero, zero, zero};
    const int64_t end = HWY_MIN(n, i + 16 * step);
    for (; i + 3 * step < end; i += 4 * step) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) {
        const Weights w = form.weights(hn::LoadU(d, list + i + j * step));
        p[j] = hn::Add(p[j], w.p);
        s[j] = hn::Add(s[j], w.s);
        v[j] = hn::Add(v[j], w.v);
      }
    }
    for (; i < end; i += step) {
      const Weights w = form.weights(hn::LoadU(d, list + i));
      p[0] = hn::Add(p[0], w.p);
      s[0] = hn::Add(s[0], w.s);
      v[0] = hn::Add(v[0], w.v);
    }
    sums.p += reduce_sum(hn::Add(hn::Add(p[0], p[1]), hn::Add(p[2], p[3])));
    sums.s += reduce_sum(hn::Add(hn::Add(s[0], s[1]), hn::Add(s[2], s[3])));
    if (Form::kCurved) sums.v += reduce_sum(hn::Add(hn::Add(v[0], v[1]), hn::Add(v[2], v[3])));
  }
  return sums;
}

// The position at `shift` of a list of which every stride-th vector is looked at.
template <class Form>
HWY_NOINLINE typename Form::Position look(const float* HWY_RESTRICT list, int64_t n, float e,
                                          double shift, int64_t stride = 1) {
  return {sum_weights(list, n, Form(e, shift), stride), e, shift, static_cast<double>(stride)};
}

// A shift at or left of that of any row that contains the list, whose largest entry is 0.
template <class Form>
HWY_NOINLINE double lower_bound(const float* HWY_RESTRICT list, int64_t n, float e) {
  const double shift = look<Form>(list, n, e, 0).fast();
  if (!(e * shift < 1)) return 0;  // past every root
  return std::max(0.0, shift + look<Form>(list, n, e, shift).newton());
}

// A gap that is rounding.
inline constexpr double kStrictGap = 3e-7;
// Gap from which one more step reaches the root to 1e-7. Halley's error is about e^2 gap^3 / 10;
// entries that leave the support within the step add at most n (e gap)^(1/e).
HWY_INLINE double last_gap(double e, int64_t n) {
  const double log_n = 0.6931472 * (std::ilogb(n) + 1);
  return std::max(kStrictGap, std::min({0.15, 0.004 / e, std::exp(-e * (16.1 + log_n)) / e}));
}

// shift of a list of n entries (filled up with -inf to whole vectors) whose largest is 0, from a
// start at any lower bound; a step from a gap of at most `last` is the last one.
template <class Form>
HWY_NOINLINE double solve_list(const float* HWY_RESTRICT list, int64_t n, float e, double start,
                               double last) {
  // shift = (1 - p_max^e) / e with p_max >= 1 / n
  double low = 0, high = std::min((1 - 1e-9) / e, 0.6931472 * (std::ilogb(n) + 1));
  double shift = start;
  constexpr int64_t kSample = 8;  // a long list is first solved for every kSample-th vector
  if (Form::kCurved && n >= 4 * kSample * float_lanes()) {
    for (int step = 0; step < 2; step++) {
      const double next = shift + look<Form>(list, n, e, shift, kSample).fast();
      if (next > start && next < high) shift = next;
    }
  }
  for (int step = 0; step < kMaxSteps; step++) {
    const auto at = look<Form>(list, n, e, shift);
    (at.gap >= 0 ? low : high) = shift;
    double next = shift + at.fast();
    if (std::fabs(at.gap) <= last) return next;
    if (!(next > low && next < high)) next = shift + at.newton();
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
