// Gradients of one row from its weights p, with e = alpha - 1 <= 1 and s = p^(1-e):
//   ds_i = s_i (dw_i - sum s dw / sum s),  dalpha = sum_i ds_i psi_i,
//   psi = log^2 p h(e log p),  h(t) = (e^t (1 - t) - 1) / t^2
// which is sum_i dw_i (dp_i / dalpha) without its differences of nearly equal terms near alpha = 1,
// where psi = -log^2 p / 2. Include after hwy/foreach_target.h.
#include <cstdint>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_ENTMAX_ATTENTION_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_ENTMAX_ATTENTION_GRADIENT_INL_H_
#undef HEDGEROW_KERNELS_ENTMAX_ATTENTION_GRADIENT_INL_H_
#else
#define HEDGEROW_KERNELS_ENTMAX_ATTENTION_GRADIENT_INL_H_
#endif

#include "kernels/entmax/attention_curves-inl.h"
#include "kernels/entmax/attention_lists-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {

// z[0 .. n), scores whose threshold is max + shift, to weights.
template <class Curve>
HWY_INLINE void weigh(const Curve& curve, float* HWY_RESTRICT z, int64_t n, float max,
                      float shift) {
  const FloatTag d;
  FloatVec s, u;
  for (int64_t i = 0; i < n; i += float_lanes()) {
    const FloatVec y = hn::Sub(hn::LoadU(d, z + i), hn::Set(d, max));
    curve.evaluate(hn::Sub(y, hn::Set(d, shift)), s, u);
    hn::StoreU(hn::Mul(s, u), d, z + i);
  }
}

// psi of weights p > 0. h is a degree-6 minimax on [-1, 0], relative error 5e-9.
HWY_INLINE FloatVec alpha_slope(float e, FloatVec p) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0f);
  const FloatVec log_p = hn::Mul(log2_vec(p), hn::Set(d, 0.693147181f));
  const FloatVec t = hn::Mul(log_p, hn::Set(d, e));
  FloatVec h = hn::Set(d, -0.000111221176f);
  h = hn::MulAdd(h, t, hn::Set(d, -0.00110962952f));
  h = hn::MulAdd(h, t, hn::Set(d, -0.0068900343f));
  h = hn::MulAdd(h, t, hn::Set(d, -0.0333140865f));
  h = hn::MulAdd(h, t, hn::Set(d, -0.124996699f));
  h = hn::MulAdd(h, t, hn::Set(d, -0.333333105f));
  h = hn::MulAdd(h, t, hn::Set(d, -0.5f));
  const FloatVec whole = hn::MulSub(exp_vec(t), hn::Sub(one, t), one);
  const auto small = hn::Gt(t, hn::Set(d, -1.0f));
  h = hn::IfThenElse(small, h, hn::Div(whole, hn::Mul(t, t)));
  return hn::Mul(hn::Mul(log_p, log_p), h);
}

// s of weights p, 0 where p is 0.
HWY_INLINE FloatVec weight_slope(float e, FloatVec p) {
  const FloatTag d;
  if (e == 0.5f) return hn::Sqrt(p);
  if (e == 0.0f) return p;
  const FloatVec s = exp2_vec(hn::Mul(log2_vec(p), hn::Set(d, 1.0f - e)));
  return hn::IfThenElseZero(hn::Gt(p, hn::Zero(d)), s);
}

// ds over dw, given s and sums of s and s dw over the row's n (a multiple of the lanes) entries;
// p is read for the gradient for alpha, which is returned when wanted.
HWY_INLINE double finish_gradient(float e, const float* HWY_RESTRICT p, const float* HWY_RESTRICT s,
                                  float* HWY_RESTRICT dw, int64_t n, float sum_s, float sum_dw,
                                  bool wanted) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  const FloatVec mean = hn::Set(d, sum_dw / sum_s), zero = hn::Zero(d);
  FloatVec dalpha = zero;
  for (int64_t i = 0; i < n; i += lanes) {
    const FloatVec si = hn::LoadU(d, s + i);
    const auto inside = hn::Gt(si, zero);  // dw elsewhere may be anything
    const FloatVec ds =
        hn::IfThenElseZero(inside, hn::Mul(si, hn::Sub(hn::LoadU(d, dw + i), mean)));
    hn::StoreU(ds, d, dw + i);
    if (!wanted) continue;
    dalpha = hn::MulAdd(ds, alpha_slope(e, hn::LoadU(d, p + i)), dalpha);
  }
  return reduce_sum(dalpha);
}

// A list of n weights p and their gradients dw, both with room for whole vectors; ds over dw.
HWY_INLINE double differentiate_list(float e, float* HWY_RESTRICT p, float* HWY_RESTRICT dw,
                                     int64_t n, float* HWY_RESTRICT s, bool wanted) {
  const FloatTag d;
  const int64_t lanes = float_lanes(), padded = round_up(n, lanes);
  std::fill(p + n, p + padded, 0.0f);
  std::fill(dw + n, dw + padded, 0.0f);
  FloatVec sum_s = hn::Zero(d), sum_dw = sum_s;
  for (int64_t i = 0; i < padded; i += lanes) {
    const FloatVec si = weight_slope(e, hn::LoadU(d, p + i));
    hn::StoreU(si, d, s + i);
    sum_s = hn::Add(sum_s, si);
    sum_dw = hn::MulAdd(si, hn::LoadU(d, dw + i), sum_dw);
  }
  return finish_gradient(e, p, s, dw, padded, reduce_sum(sum_s), reduce_sum(sum_dw), wanted);
}

// The same for a whole row: its scores z[0 .. n), n a multiple of the lanes, become the weights.
template <class Curve>
HWY_INLINE double differentiate_dense(const Curve& curve, float e, float max, float shift,
                                      float* HWY_RESTRICT z, float* HWY_RESTRICT dw, int64_t n,
                                      float* HWY_RESTRICT s, bool wanted) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  const FloatVec top = hn::Set(d, max), by = hn::Set(d, shift), zero = hn::Zero(d);
  FloatVec sum_s = zero, sum_dw = zero, si, u;
  for (int64_t i = 0; i < n; i += lanes) {
    curve.evaluate(hn::Sub(hn::Sub(hn::LoadU(d, z + i), top), by), si, u);
    const auto inside = hn::Gt(si, zero);
    hn::StoreU(hn::Mul(si, u), d, z + i);
    hn::StoreU(si, d, s + i);
    sum_s = hn::Add(sum_s, si);
    sum_dw = hn::MulAdd(si, hn::IfThenElseZero(inside, hn::LoadU(d, dw + i)), sum_dw);
  }
  return finish_gradient(e, z, s, dw, n, reduce_sum(sum_s), reduce_sum(sum_dw), wanted);
}

// alpha > 2, in double: slopes of small weights have any size.
HWY_INLINE double differentiate_wide(double alpha, const float* p, float* dw, int64_t n,
                                     ListScratch& list) {
  std::vector<double>& x = list.wide_scores;  // p, dw, ds
  x.resize(3 * n);
  for (int64_t i = 0; i < n; i++) {
    x[i] = p[i];
    x[n + i] = dw[i];
  }
  const double dalpha = entmax::row_backward(x.data(), x.data() + n, n, alpha, x.data() + 2 * n);
  constexpr double kLargest = std::numeric_limits<float>::max();
  for (int64_t i = 0; i < n; i++) {
    dw[i] = static_cast<float>(std::clamp(x[2 * n + i], -kLargest, kLargest));
  }
  return dalpha;
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_ENTMAX_ATTENTION_GRADIENT_INL_H_
