// One row of the forward.
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/entmax/rows_forward.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/entmax/row-inl.h"
#include "kernels/entmax/rows_internal.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels::entmax {
namespace HWY_NAMESPACE {
namespace {

// Vectors of running maxima per row. The maxima are entries of the row, so that the threshold of
// them alone is a lower bound of the row's, tight enough to leave few candidates.
constexpr int kMaxima = 4;

// Calls body(i, vector) for every vector of z[0 .. n), the last one filled up with -inf.
template <class Body>
HWY_INLINE void for_vectors(const float* HWY_RESTRICT z, int64_t n, Body body) {
  const int64_t lanes = float_lanes();
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, hn::LoadU(FloatTag(), z + i));
  if (i < n) body(i, load_tail(z + i, n - i, kLowest));
}

// Maximum of z; maxima[0 .. kMaxima * lanes) gets those of its residue classes.
HWY_INLINE float row_maxima(const float* HWY_RESTRICT z, int64_t n, float* HWY_RESTRICT maxima) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  const FloatVec lowest = hn::Set(d, kLowest);
  FloatVec m0 = lowest, m1 = lowest, m2 = lowest, m3 = lowest;
  int64_t i = 0;
  for (; i + kMaxima * lanes <= n; i += kMaxima * lanes) {
    m0 = hn::Max(m0, hn::LoadU(d, z + i));
    m1 = hn::Max(m1, hn::LoadU(d, z + i + lanes));
    m2 = hn::Max(m2, hn::LoadU(d, z + i + 2 * lanes));
    m3 = hn::Max(m3, hn::LoadU(d, z + i + 3 * lanes));
  }
  hn::Store(m0, d, maxima);
  hn::Store(m1, d, maxima + lanes);
  hn::Store(m2, d, maxima + 2 * lanes);
  hn::Store(m3, d, maxima + 3 * lanes);
  for (float* m = maxima; i < n; i += lanes, m += lanes) {
    const FloatVec v = i + lanes <= n ? hn::LoadU(d, z + i) : load_tail(z + i, n - i, kLowest);
    hn::Store(hn::Max(hn::Load(d, m), v), d, m);
  }
  m0 = hn::Max(hn::Load(d, maxima), hn::Load(d, maxima + lanes));
  m1 = hn::Max(hn::Load(d, maxima + 2 * lanes), hn::Load(d, maxima + 3 * lanes));
  return reduce_max(hn::Max(m0, m1));
}

// list = the entries of z - max above `bound`, or kRaw: those of z; filled up with -inf to whole
// vectors. Their number. list has room for n entries and 2 vectors.
template <bool kRaw = false>
HWY_INLINE int64_t select(const float* HWY_RESTRICT z, int64_t n, float max, float bound,
                          float* HWY_RESTRICT list) {
  const FloatTag d;
  const FloatVec top = hn::Set(d, max), low = hn::Set(d, bound);
  int64_t count = 0;
  for_vectors(z, n, [&](int64_t, FloatVec v) HEDGEROW_ROW_FUNCTOR {
    const FloatVec x = hn::Sub(v, top);
    const auto keep = hn::Gt(x, low);
    hn::StoreU(hn::Compress(kRaw ? v : x, keep), d, list + count);
    count += static_cast<int64_t>(hn::CountTrue(d, keep));
  });
  hn::StoreU(hn::Set(d, kLowest), d, list + count);
  return count;
}

HWY_INLINE int64_t whole_vectors(int64_t n) {
  return (n + float_lanes() - 1) / float_lanes() * float_lanes();
}

// Writes the row's weights; returns their sum where Form counts it, else 1.
template <class Form>
HWY_NOINLINE double store_weights(const float* HWY_RESTRICT z, int64_t n, float max,
                                  const Form& form, float* HWY_RESTRICT p) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  const FloatVec top = hn::Set(d, max);
  FloatVec run = hn::Zero(d);
  bool pending = false;
  double sum = Form::kCheap ? 1 : 0;
  for_vectors(z, n, [&](int64_t i, FloatVec v) HEDGEROW_ROW_FUNCTOR {
    const FloatVec x = hn::Sub(v, top);
    FloatVec w = hn::Zero(d);
    if constexpr (Form::kCheap) {
      w = form.weight(x);
    } else {
      if (form.any(x)) {
        w = form.weight(x);
        run = hn::Add(run, w);
        pending = true;
      }
      if (pending && ((i / lanes + 1) % 8 == 0 || i + lanes >= n)) {
        sum += reduce_sum(run);
        run = hn::Zero(d);
        pending = false;
      }
    }
    if (i + lanes <= n) {
      hn::StoreU(w, d, p + i);
    } else {
      store_tail(w, p + i, n - i);
    }
  });
  return sum;
}

// Equal entries round alike, so that logarithms of many can move the sum by more than 1e-6 at
// thresholds that are right to a bit: what they rounded is shared out. A sum further off than
// rounding explains means that the search ended too early: it is repeated with no trust in its last
// step.
template <class Form>
HWY_NOINLINE double correct_sum(const float* HWY_RESTRICT z, int64_t n, float max, float e,
                                const float* HWY_RESTRICT list, int64_t size, double shift,
                                double sum, float* HWY_RESTRICT p) {
  constexpr double kRounding = 4e-6;
  if (std::fabs(sum - 1) > kRounding) {
    shift = solve_list<Form>(list, size, e, 0, kStrictGap);
    sum = store_weights(z, n, max, Form(e, shift, true), p);
  }
  if (std::fabs(sum - 1) > kRounding) return shift;
  const float scale = static_cast<float>(1 / sum);
  for (int64_t i = 0; i < n; i++) p[i] *= scale;
  return shift;
}

// Returns shift.
template <class Form>
HWY_NOINLINE double sparse_row(const float* HWY_RESTRICT z, int64_t n, float max, float e,
                               float* HWY_RESTRICT maxima, float* HWY_RESTRICT list,
                               float* HWY_RESTRICT p) {
  const FloatTag d;
  const int64_t lanes = float_lanes(), num_maxima = kMaxima * lanes;
  double start = 0;
  if (n > num_maxima && e >= kPowerForm) {
    for (int64_t i = 0; i < num_maxima; i += lanes) {
      hn::Store(hn::Sub(hn::Load(d, maxima + i), hn::Set(d, max)), d, maxima + i);
    }
    start = lower_bound<Form>(maxima, num_maxima, e);
  }
  // supported: d > shift - 1/e; a little less, for rounding. p <= exp(d) is 0 below -105.
  const float bound = std::max(static_cast<float>(start - 1.000002 / e), -105.0f);
  const int64_t size = whole_vectors(select(z, n, max, bound, list));
  const double shift = solve_list<Form>(list, size, e, start, last_gap(e, size));
  const double sum = store_weights(z, n, max, Form(e, shift, true), p);
  if constexpr (!Form::kCheap) {
    if (!(std::fabs(sum - 1) <= 4e-7)) {
      return correct_sum<Form>(z, n, max, e, list, size, shift, sum, p);
    }
  }
  return shift;
}

// alpha > 2: double arithmetic on the candidates.
HWY_NOINLINE Threshold<double> wide_row(const float* HWY_RESTRICT z, int64_t n, float max,
                                        double alpha, float* HWY_RESTRICT list,
                                        float* HWY_RESTRICT p, RowScratch& scratch) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  const double e = alpha - 1;
  const float bound = static_cast<float>(-1.000002 / e);
  const int64_t size = select<true>(z, n, max, bound, list);
  scratch.values.assign(list, list + size);
  const Threshold<double> row = solve(scratch.values.data(), size, e, scratch.sorted);
  const FloatVec low = hn::Set(d, static_cast<float>(row.z_min));  // an entry: exact
  for_vectors(z, n, [&](int64_t i, FloatVec v) HEDGEROW_ROW_FUNCTOR {
    const int64_t count = HWY_MIN(lanes, n - i);
    if (hn::AllFalse(d, hn::Ge(v, low))) {
      if (count == lanes) return hn::StoreU(hn::Zero(d), d, p + i);
      return store_tail(hn::Zero(d), p + i, count);
    }
    for (int64_t j = i; j < i + count; j++) p[j] = static_cast<float>(row.weight(z[j]));
  });
  return row;
}

// alpha = 1. Returns log(sum exp(z - max)).
HWY_NOINLINE double softmax_row(const float* HWY_RESTRICT z, int64_t n, float max,
                                float* HWY_RESTRICT p) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  const FloatVec top = hn::Set(d, max);
  double sum = 0;
  int64_t i = 0;
  while (i + lanes <= n) {
    FloatVec s0 = hn::Zero(d), s1 = hn::Zero(d);
    const int64_t end = HWY_MIN(n, i + 16 * lanes);
    for (; i + 2 * lanes <= end; i += 2 * lanes) {
      const FloatVec a = exp_vec(hn::Sub(hn::LoadU(d, z + i), top));
      const FloatVec b = exp_vec(hn::Sub(hn::LoadU(d, z + i + lanes), top));
      hn::StoreU(a, d, p + i);
      hn::StoreU(b, d, p + i + lanes);
      s0 = hn::Add(s0, a);
      s1 = hn::Add(s1, b);
    }
    for (; i + lanes <= end; i += lanes) {
      const FloatVec a = exp_vec(hn::Sub(hn::LoadU(d, z + i), top));
      hn::StoreU(a, d, p + i);
      s0 = hn::Add(s0, a);
    }
    sum += reduce_sum(hn::Add(s0, s1));
  }
  if (i < n) {
    const FloatVec a = exp_vec(hn::Sub(load_tail(z + i, n - i, kLowest), top));
    store_tail(a, p + i, n - i);
    sum += reduce_sum(a);
  }
  const FloatVec scale = hn::Set(d, static_cast<float>(1.0 / sum));
  for (i = 0; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, p + i), scale), d, p + i);
  }
  for (; i < n; i++) p[i] *= static_cast<float>(1.0 / sum);
  return std::log(sum);
}

}  // namespace

Threshold<double> forward_row_vector(const float* z, int64_t n, double alpha, float* p,
                                     RowScratch& scratch) {
  HWY_ALIGN float maxima[kMaxima * HWY_LANES(float)];
  const float e = static_cast<float>(alpha - 1);
  Threshold<double> row{alpha - 1 > kLambdaForm ? alpha - 1 : e};
  const float max = row_maxima(z, n, maxima);
  row.max = max;
  if (max == kLowest) {
    std::fill(p, p + n, 0.0f);
    return row;
  }
  if (max == -kLowest) return forward_row_double(z, n, alpha, p, scratch);
  float* list = reserve(scratch.list, n + 2 * float_lanes());
  if (alpha - 1 > kLambdaForm) return wide_row(z, n, max, alpha, list, p, scratch);
  if (e == 0) {
    row.shift = softmax_row(z, n, max, p);
  } else if (e == 1) {
    row.shift = sparse_row<SparsemaxForm>(z, n, max, e, maxima, list, p);
  } else if (e == 0.5f) {
    row.shift = sparse_row<RootForm>(z, n, max, e, maxima, list, p);
  } else if (e >= kPowerForm) {
    row.shift = sparse_row<PowerForm>(z, n, max, e, maxima, list, p);
  } else {
    row.shift = sparse_row<LogForm>(z, n, max, e, maxima, list, p);
  }
  return row;
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels::entmax
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hedgerow::kernels::entmax {
HWY_EXPORT(forward_row_vector);

Threshold<double> forward_row(const float* z, int64_t n, double alpha, float* p,
                              RowScratch& scratch) {
  return HWY_DYNAMIC_DISPATCH(forward_row_vector)(z, n, alpha, p, scratch);
}

}  // namespace hedgerow::kernels::entmax
#endif  // HWY_ONCE
