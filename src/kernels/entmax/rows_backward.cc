// One row of the backward: vector code for alpha in [1, 2], double arithmetic above.
#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/entmax/rows_backward.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/entmax/row-inl.h"
#include "kernels/entmax/rows_internal.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels::entmax {
namespace HWY_NAMESPACE {
namespace {

inline constexpr float kSmallestNormal = 1.17549435e-38f;

// (e^y - 1 - y) / y^2 on [0, 1/2], relative error 4e-8: its series.
HWY_INLINE FloatVec expm1_second_vec(FloatVec y) {
  const FloatTag d;
  FloatVec p = hn::Set(d, 1.0f / 362880);
  p = hn::MulAdd(p, y, hn::Set(d, 1.0f / 40320));
  p = hn::MulAdd(p, y, hn::Set(d, 1.0f / 5040));
  p = hn::MulAdd(p, y, hn::Set(d, 1.0f / 720));
  p = hn::MulAdd(p, y, hn::Set(d, 1.0f / 120));
  p = hn::MulAdd(p, y, hn::Set(d, 1.0f / 24));
  p = hn::MulAdd(p, y, hn::Set(d, 1.0f / 6));
  return hn::MulAdd(p, y, hn::Set(d, 0.5f));
}

// s = p^(1-e) and the alpha terms r (see alpha_term) of the row's weights; both 0 where p = 0.
class Terms {
 public:
  explicit Terms(float e) : e_(e) {
    inv_e2_ = e > 1e-3f ? 1.0f / (e * e) : 0.0f;  // not used below: then y < 1/2
  }

  HWY_INLINE FloatVec s(FloatVec p) const {
    const FloatTag d;
    const auto inside = hn::Gt(p, hn::Zero(d));
    if (e_ == 0) return hn::IfThenElseZero(inside, p);
    if (e_ == 1) return hn::IfThenElseZero(inside, hn::Set(d, 1.0f));
    if (e_ == 0.5f) return hn::IfThenElseZero(inside, hn::Sqrt(p));
    return hn::IfThenElseZero(inside, from_log(log_of(p)));
  }

  HWY_INLINE FloatVec s_and_r(FloatVec p, FloatVec& r) const {
    const FloatTag d;
    const auto inside = hn::Gt(p, hn::Zero(d));
    const FloatVec log_p = log_of(p), y = hn::Mul(log_p, hn::Set(d, -e_));
    const FloatVec s = e_ == 0 ? p : from_log(log_p);
    const FloatVec near = hn::Neg(hn::Mul(hn::Mul(hn::Mul(p, log_p), log_p), expm1_second_vec(y)));
    const FloatVec far = hn::Mul(hn::Sub(hn::MulAdd(p, y, p), s), hn::Set(d, inv_e2_));
    r = hn::IfThenElseZero(inside, hn::IfThenElse(hn::Gt(y, hn::Set(d, 0.5f)), far, near));
    return hn::IfThenElseZero(inside, s);
  }

 private:
  static HWY_INLINE FloatVec log_of(FloatVec p) {
    return log_vec(hn::Max(p, hn::Set(FloatTag(), kSmallestNormal)));
  }
  HWY_INLINE FloatVec from_log(FloatVec log_p) const {
    return exp_vec(hn::Mul(log_p, hn::Set(FloatTag(), 1.0f - e_)));
  }

  float e_, inv_e2_;
};

// g of the first largest p in each lane; 0 where a lane has none. Returns that of the largest p of
// all, the first in the row.
class Largest {
 public:
  HWY_INLINE Largest() : p_(hn::Zero(FloatTag())), g_(hn::Zero(FloatTag())) {}
  HWY_INLINE void add(FloatVec p, FloatVec g) {
    const auto more = hn::Gt(p, p_);
    p_ = hn::IfThenElse(more, p, p_);
    g_ = hn::IfThenElse(more, g, g_);
  }
  HWY_INLINE float largest_p() const { return reduce_max(p_); }
  HWY_INLINE float grad() const {
    const FloatTag d;
    HWY_ALIGN float p[HWY_LANES(float)], g[HWY_LANES(float)];
    hn::Store(p_, d, p);
    hn::Store(g_, d, g);
    const float top = reduce_max(p_);
    for (int64_t i = 0; i < float_lanes(); i++) {
      if (p[i] == top) return g[i];
    }
    return 0;
  }

 private:
  FloatVec p_, g_;
};

// Vectors per float sum; runs of them are added in double.
constexpr int64_t kRun = 8;

// One row's p and g as vectors, the last one filled up with 0: body(i, p, g) for each, and flush()
// after every run of kRun.
template <class Body, class Flush>
HWY_INLINE void for_runs(const float* HWY_RESTRICT p, const float* HWY_RESTRICT g, int64_t n,
                         Body body, Flush flush) {
  const FloatTag d;
  const int64_t lanes = float_lanes(), whole = n / lanes * lanes;
  for (int64_t i = 0; i < whole;) {
    const int64_t end = HWY_MIN(whole, i + kRun * lanes);
    for (; i < end; i += lanes) body(i, hn::LoadU(d, p + i), hn::LoadU(d, g + i));
    flush();
  }
  if (whole == n) return;
  body(whole, load_tail(p + whole, n - whole, 0.0f), load_tail(g + whole, n - whole, 0.0f));
  flush();
}

// Positions of the support, if at most `most` entries; else the row counts as dense, -1. `list` has
// room for `most` entries and 2 vectors.
HWY_INLINE int64_t support_list(const float* HWY_RESTRICT p, int64_t n, int64_t most,
                                int32_t* HWY_RESTRICT list) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const int64_t lanes = float_lanes();
  const FloatVec zero = hn::Zero(d);
  auto index = hn::Iota(di, 0);
  const auto step = hn::Set(di, static_cast<int32_t>(lanes));
  int64_t count = 0;
  for (int64_t i = 0; i < n; i += lanes) {
    const FloatVec v = i + lanes <= n ? hn::LoadU(d, p + i) : load_tail(p + i, n - i, 0.0f);
    const auto keep = hn::RebindMask(di, hn::Gt(v, zero));
    hn::StoreU(hn::Compress(index, keep), di, list + count);
    index = hn::Add(index, step);
    count += static_cast<int64_t>(hn::CountTrue(di, keep));
    if (count > most) return -1;
  }
  return count;
}

// The row itself; r of alpha_term only where wanted.
HWY_NOINLINE double dense_row(const float* HWY_RESTRICT p, const float* HWY_RESTRICT g, int64_t n,
                              float e, float* HWY_RESTRICT dx, bool want_alpha,
                              RowScratch& scratch) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  const FloatVec zero = hn::Zero(d);
  const Terms terms(e);
  Largest largest;
  for_runs(
      p, g, n, [&](int64_t, FloatVec pv, FloatVec gv) HEDGEROW_ROW_FUNCTOR { largest.add(pv, gv); },
      []() HEDGEROW_ROW_FUNCTOR {});
  const FloatVec top = hn::Set(d, largest.grad());
  float* s_list = reserve(scratch.list, n + 2 * lanes);
  float* r_list = reserve(scratch.terms, want_alpha ? n + 2 * lanes : 0);

  FloatVec share = zero, moment = zero;  // sums of s and s (g - g_top)
  double total_share = 0, total_moment = 0;
  for_runs(
      p, g, n,
      [&](int64_t i, FloatVec pv, FloatVec gv) HEDGEROW_ROW_FUNCTOR {
        FloatVec r = zero;
        const FloatVec s = want_alpha ? terms.s_and_r(pv, r) : terms.s(pv);
        share = hn::Add(share, s);
        const FloatVec x = hn::IfThenElseZero(hn::Gt(pv, zero), hn::Sub(gv, top));
        moment = hn::MulAdd(s, x, moment);
        hn::StoreU(s, d, s_list + i);
        if (want_alpha) hn::StoreU(r, d, r_list + i);
      },
      [&]() HEDGEROW_ROW_FUNCTOR {
        total_share += reduce_sum(share);
        total_moment += reduce_sum(moment);
        share = moment = zero;
      });
  const FloatVec mean =
      hn::Set(d, total_share > 0 ? static_cast<float>(total_moment / total_share) : 0.0f);

  FloatVec dalpha = zero;
  double total_dalpha = 0;
  for_runs(
      p, g, n,
      [&](int64_t i, FloatVec pv, FloatVec gv) HEDGEROW_ROW_FUNCTOR {
        const FloatVec x = hn::IfThenElseZero(hn::Gt(pv, zero), hn::Sub(hn::Sub(gv, top), mean));
        if (want_alpha) dalpha = hn::MulAdd(hn::LoadU(d, r_list + i), x, dalpha);
        if (dx == nullptr) return;
        const FloatVec dz = hn::Mul(hn::LoadU(d, s_list + i), x);
        if (i + lanes <= n) return hn::StoreU(dz, d, dx + i);
        store_tail(dz, dx + i, n - i);
      },
      [&]() HEDGEROW_ROW_FUNCTOR {
        if (!want_alpha) return;
        total_dalpha += reduce_sum(dalpha);
        dalpha = zero;
      });
  return total_dalpha;
}

// alpha > 2: double arithmetic.
double wide_row(const float* p, const float* g, int64_t n, double alpha, float* dx,
                RowScratch& scratch) {
  scratch.p.assign(p, p + n);
  scratch.grad.assign(g, g + n);
  scratch.dz.resize(n);
  const double dalpha = row_backward(scratch.p.data(), scratch.grad.data(), n, alpha,
                                     dx ? scratch.dz.data() : nullptr);
  constexpr double kLimit = std::numeric_limits<float>::max();
  for (int64_t i = 0; i < n && dx; i++) {
    dx[i] = static_cast<float>(std::clamp(scratch.dz[i], -kLimit, kLimit));
  }
  return dalpha;
}

double any_row(const float* p, const float* g, int64_t n, double alpha, float* dx, bool want_alpha,
               RowScratch& scratch) {
  if (alpha - 1 > kLambdaForm) return wide_row(p, g, n, alpha, dx, scratch);
  return dense_row(p, g, n, static_cast<float>(alpha - 1), dx, want_alpha, scratch);
}

}  // namespace

double backward_row_vector(const float* HWY_RESTRICT p, const float* HWY_RESTRICT g, int64_t n,
                           double alpha, float* HWY_RESTRICT dx, bool want_alpha,
                           RowScratch& scratch) {
  // A support of less than a quarter of the row is packed first.
  if (alpha == 1 || n < 32 || n > std::numeric_limits<int32_t>::max()) {
    return any_row(p, g, n, alpha, dx, want_alpha, scratch);
  }
  const int64_t most = n / 4;
  int32_t* list = reserve(scratch.support, most + 2 * float_lanes());
  const int64_t size = support_list(p, n, most, list);
  if (size < 0) return any_row(p, g, n, alpha, dx, want_alpha, scratch);
  float* packed = reserve(scratch.packed, 3 * most);
  float *pp = packed, *pg = packed + most, *pdx = packed + 2 * most;
  for (int64_t i = 0; i < size; i++) {
    pp[i] = p[list[i]];
    pg[i] = g[list[i]];
  }
  const double dalpha = any_row(pp, pg, size, alpha, dx ? pdx : nullptr, want_alpha, scratch);
  if (dx == nullptr) return dalpha;
  std::fill(dx, dx + n, 0.0f);
  for (int64_t i = 0; i < size; i++) dx[list[i]] = pdx[i];
  return dalpha;
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels::entmax
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hedgerow::kernels::entmax {
HWY_EXPORT(backward_row_vector);

double backward_row(const float* p, const float* g, int64_t n, double alpha, float* dx,
                    bool want_alpha, RowScratch& scratch) {
  return HWY_DYNAMIC_DISPATCH(backward_row_vector)(p, g, n, alpha, dx, want_alpha, scratch);
}

}  // namespace hedgerow::kernels::entmax
#endif  // HWY_ONCE
