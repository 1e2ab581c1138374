// The maps other than `exp` on chunks of tokens, forward and backward.
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_LINEAR_MAPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_LINEAR_MAPS_INL_H_
#undef HEDGEROW_KERNELS_LINEAR_MAPS_INL_H_
#else
#define HEDGEROW_KERNELS_LINEAR_MAPS_INL_H_
#endif

#include "kernels/linear/features-inl.h"
#include "kernels/linear/state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels::linear {
namespace HWY_NAMESPACE {

// body(i, tag of the valid lanes) over the vectors of n numbers; loads may read padding.
template <class Body>
HWY_INLINE void for_vectors(int64_t n, Body body) {
  const FloatTag d;
  for (int64_t i = 0; i < n; i += float_lanes()) {
    body(i, hn::FirstN(d, static_cast<size_t>(std::min(n - i, float_lanes()))));
  }
}

// f [0, n) = softmax of factor * y over n numbers; returns nothing outside [0, n). With `both`, one
// softmax over factor * y and -factor * y, whose second half goes to f + second.
HWY_INLINE void softmax_row(int64_t n, float factor, bool both, const float* HWY_RESTRICT y,
                            float* HWY_RESTRICT f, int64_t second) {
  const FloatTag d;
  const FloatVec by = hn::Set(d, factor), lowest = hn::Set(d, -3e38f);
  FloatVec top = lowest;
  for_vectors(n, [&](int64_t i, auto valid) HEDGEROW_FUNCTOR {
    const FloatVec v = hn::Mul(by, hn::LoadU(d, y + i));
    top = hn::Max(top, hn::IfThenElse(valid, both ? hn::Abs(v) : v, lowest));
  });
  const float maximum = reduce_max(top);
  FloatVec sum = hn::Zero(d);
  for_vectors(n, [&](int64_t i, auto valid) HEDGEROW_FUNCTOR {
    const FloatVec v = hn::Mul(by, hn::LoadU(d, y + i)), m = hn::Set(d, maximum);
    const FloatVec lo = hn::IfThenElseZero(valid, exp_vec(hn::Sub(v, m)));
    sum = hn::Add(sum, lo);
    hn::StoreU(lo, d, f + i);
    if (!both) return;
    const FloatVec hi = hn::IfThenElseZero(valid, exp_vec(hn::Sub(hn::Neg(v), m)));
    sum = hn::Add(sum, hi);
    hn::StoreU(hi, d, f + second + i);
  });
  const FloatVec inv = hn::Set(d, 1.0f / reduce_sum(sum));
  for_vectors(n, [&](int64_t i, auto) HEDGEROW_FUNCTOR {
    hn::StoreU(hn::Mul(inv, hn::LoadU(d, f + i)), d, f + i);
    if (both) hn::StoreU(hn::Mul(inv, hn::LoadU(d, f + second + i)), d, f + second + i);
  });
}

// f [padded] of y [width_pad] in natural units; pads become 0. square_norm is |x|^2.
HWY_INLINE void map_row(const FeatureShape& s, const float* HWY_RESTRICT y, float square_norm,
                        float* HWY_RESTRICT f) {
  const FloatTag d;
  const int64_t E = s.width;
  if (s.half != s.half_pad || s.map == FeatureMap::kTaylor) std::fill(f, f + s.padded, 0.0f);
  switch (s.map) {
    case FeatureMap::kExp:
      return for_vectors(E, [&](int64_t i, auto valid) HEDGEROW_FUNCTOR {
        const FloatVec v = hn::LoadU(d, y + i);
        hn::StoreU(hn::IfThenElseZero(valid, exp_vec(v)), d, f + i);
        hn::StoreU(hn::IfThenElseZero(valid, exp_vec(hn::Neg(v))), d, f + s.half_pad + i);
      });
    case FeatureMap::kSoftmax:
      softmax_row(E, 1.0f, false, y, f, 0);
      return softmax_row(E, -1.0f, false, y, f + s.half_pad, 0);
    case FeatureMap::kSoftmaxJoint:
      return softmax_row(E, 2.0f, true, y, f, s.half_pad);
    case FeatureMap::kElu:
      return for_vectors(E, [&](int64_t i, auto valid) HEDGEROW_FUNCTOR {
        const FloatVec v = hn::LoadU(d, y + i), zero = hn::Zero(d);
        const FloatVec e = exp_vec(hn::Min(v, zero));
        hn::StoreU(hn::IfThenElseZero(valid, hn::Add(e, hn::Max(v, zero))), d, f + i);
      });
    case FeatureMap::kRelu:
      return for_vectors(E, [&](int64_t i, auto valid) HEDGEROW_FUNCTOR {
        hn::StoreU(hn::IfThenElseZero(valid, hn::Max(hn::LoadU(d, y + i), hn::Zero(d))), d, f + i);
      });
    case FeatureMap::kTaylor:
      f[0] = 1;
      for (int64_t i = 0; i < E; i++) {
        f[1 + i] = y[i];
        const float yi = y[i] * 0.70710678f;
        for (int64_t j = 0; j < E; j++) f[1 + E + i * E + j] = yi * y[j];
      }
      return;
    case FeatureMap::kExpHalf:
    case FeatureMap::kPerformer: {
      const bool performer = s.map == FeatureMap::kPerformer;
      const float shift = performer ? -0.5f * square_norm : 0.0f;
      const FloatVec by = hn::Set(d, performer ? 1.0f / std::sqrt(static_cast<float>(E)) : 1.0f);
      return for_vectors(E, [&](int64_t i, auto valid) HEDGEROW_FUNCTOR {
        const FloatVec e = exp_vec(hn::Add(hn::LoadU(d, y + i), hn::Set(d, shift)));
        hn::StoreU(hn::IfThenElseZero(valid, hn::Mul(by, e)), d, f + i);
      });
    }
  }
}

// Rows [0, n); rows that keep excludes become 0. x [n][dim] is read for its norm only.
HWY_INLINE void map_rows(int64_t n, const FeatureShape& s, const float* y, const float* x,
                         int64_t x_row, const uint8_t* keep, float* f) {
  for (int64_t r = 0; r < n; r++) {
    float* out = f + r * s.padded;
    if (keep != nullptr && !keep[r]) {
      std::fill(out, out + s.padded, 0.0f);
      continue;
    }
    float norm = 0;
    if (s.map == FeatureMap::kPerformer) {
      for (int64_t i = 0; i < s.dim; i++) norm += x[r * x_row + i] * x[r * x_row + i];
    }
    map_row(s, y + r * s.width_pad, norm, out);
  }
}

// dy (+)= sign * p (g - p.g) over n numbers: through a softmax.
HWY_INLINE void softmax_row_backward(int64_t n, const float* p, const float* g, float sign,
                                     float dot, bool accumulate, float* dy) {
  for (int64_t i = 0; i < n; i++) {
    dy[i] = (accumulate ? dy[i] : 0.0f) + sign * p[i] * (g[i] - dot);
  }
}

HWY_INLINE float short_dot(int64_t n, const float* a, const float* b) {
  float s = 0;
  for (int64_t i = 0; i < n; i++) s += a[i] * b[i];
  return s;
}

// dy [width_pad] for the gradient g [padded] of the features f [padded] (kExp: of their sizes times
// the features, as for every map). Padding of dy becomes 0.
HWY_INLINE void map_row_backward(const FeatureShape& s, const float* HWY_RESTRICT y,
                                 const float* HWY_RESTRICT f, const float* HWY_RESTRICT g,
                                 float* HWY_RESTRICT dy) {
  const FloatTag d;
  const int64_t E = s.width, second = s.half_pad;
  std::fill(dy + E, dy + s.width_pad, 0.0f);
  switch (s.map) {
    case FeatureMap::kExp:
      for (int64_t i = 0; i < s.half_pad; i += float_lanes()) {
        const FloatVec hi = hn::Mul(hn::LoadU(d, g + second + i), hn::LoadU(d, f + second + i));
        hn::StoreU(hn::MulSub(hn::LoadU(d, g + i), hn::LoadU(d, f + i), hi), d, dy + i);
      }
      return;
    case FeatureMap::kSoftmax:
      softmax_row_backward(E, f, g, 1, short_dot(E, f, g), false, dy);
      return softmax_row_backward(E, f + second, g + second, -1,
                                  short_dot(E, f + second, g + second), true, dy);
    case FeatureMap::kSoftmaxJoint: {
      const float dot = short_dot(E, f, g) + short_dot(E, f + second, g + second);
      softmax_row_backward(E, f, g, 2, dot, false, dy);
      return softmax_row_backward(E, f + second, g + second, -2, dot, true, dy);
    }
    case FeatureMap::kElu:
      for (int64_t i = 0; i < E; i++) dy[i] = y[i] > 0 ? g[i] : g[i] * f[i];
      return;
    case FeatureMap::kRelu:
      for (int64_t i = 0; i < E; i++) dy[i] = y[i] > 0 ? g[i] : 0.0f;
      return;
    case FeatureMap::kTaylor: {
      const float* m = g + 1 + E;
      for (int64_t i = 0; i < E; i++) {
        float sum = 0;
        for (int64_t j = 0; j < E; j++) sum += (m[i * E + j] + m[j * E + i]) * y[j];
        dy[i] = g[1 + i] + sum * 0.70710678f;
      }
      return;
    }
    case FeatureMap::kExpHalf:
    case FeatureMap::kPerformer:
      for (int64_t i = 0; i < E; i++) dy[i] = g[i] * f[i];
      return;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels::linear
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_LINEAR_MAPS_INL_H_
