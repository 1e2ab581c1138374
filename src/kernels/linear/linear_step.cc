// One decoded token: the caller's state is updated where it lies.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/linear_step.cc"
#include "base/parallel.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/linear/chunk-inl.h"
#include "kernels/linear/gradients-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels::linear {
namespace HWY_NAMESPACE {

// y [width] = x W + b, all in place (width: whole vectors); natural units.
template <int NV>
HWY_INLINE void project_token(int64_t dim, int64_t width, const float* HWY_RESTRICT x,
                              const float* HWY_RESTRICT w, const float* HWY_RESTRICT b,
                              float* HWY_RESTRICT y) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  FloatVec even[NV], odd[NV];  // two chains, so that the latency of additions is hidden
  HEDGEROW_UNROLL
  for (int j = 0; j < NV; j++) {
    even[j] = b ? hn::LoadU(d, b + j * lanes) : hn::Zero(d);
    odd[j] = hn::Zero(d);
  }
  int64_t i = 0;
  for (; i + 2 <= dim; i += 2) {
    const FloatVec x0 = hn::Set(d, x[i]), x1 = hn::Set(d, x[i + 1]);
    HEDGEROW_UNROLL
    for (int j = 0; j < NV; j++) {
      even[j] = hn::MulAdd(x0, hn::LoadU(d, w + i * width + j * lanes), even[j]);
      odd[j] = hn::MulAdd(x1, hn::LoadU(d, w + (i + 1) * width + j * lanes), odd[j]);
    }
  }
  if (i < dim) {
    const FloatVec x0 = hn::Set(d, x[i]);
    HEDGEROW_UNROLL
    for (int j = 0; j < NV; j++) {
      even[j] = hn::MulAdd(x0, hn::LoadU(d, w + i * width + j * lanes), even[j]);
    }
  }
  HEDGEROW_UNROLL
  for (int j = 0; j < NV; j++) hn::StoreU(hn::Add(even[j], odd[j]), d, y + j * lanes);
}

HWY_INLINE void project_token(int64_t dim, int64_t width, const float* x, const float* w,
                              const float* b, float* y) {
  const int64_t lanes = float_lanes();
  for_vec_panels(width / lanes, [=](auto nv, int64_t j) HEDGEROW_FUNCTOR {
    project_token<decltype(nv)::value>(dim, width, x, w + j * lanes, b ? b + j * lanes : nullptr,
                                       y + j * lanes);
  });
}

// S += fk x v and, with fq, out = fq S, on NV vectors of columns of a row-major [features][cols].
template <int NV, bool kAdd>
HWY_INLINE void step_columns(int64_t features, int64_t cols, const float* HWY_RESTRICT fk,
                             const float* HWY_RESTRICT v, const float* HWY_RESTRICT fq,
                             float factor, float* HWY_RESTRICT state, float* HWY_RESTRICT out) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  FloatVec o[NV], c[NV];
  HEDGEROW_UNROLL
  for (int j = 0; j < NV; j++) {
    o[j] = hn::Zero(d);
    c[j] = hn::LoadU(d, v + j * lanes);
  }
  for (int64_t f = 0; f < features; f++) {
    const FloatVec a = hn::Set(d, fk[f]), q = hn::Set(d, fq[f]);
    float* HWY_RESTRICT row = state + f * cols;
    HEDGEROW_UNROLL
    for (int j = 0; j < NV; j++) {
      FloatVec s = hn::LoadU(d, row + j * lanes);
      if (kAdd) {
        s = hn::MulAdd(a, c[j], s);
        hn::StoreU(s, d, row + j * lanes);
      }
      o[j] = hn::MulAdd(q, s, o[j]);
    }
  }
  HEDGEROW_UNROLL
  for (int j = 0; j < NV; j++) {
    hn::StoreU(hn::Mul(o[j], hn::Set(d, factor)), d, out + j * lanes);
  }
}

template <bool kAdd>
HWY_INLINE void step_state(int64_t features, int64_t cols, const float* fk, const float* v,
                           const float* fq, float factor, float* state, float* out) {
  const int64_t lanes = float_lanes();
  for_vec_panels(cols / lanes, [=](auto nv, int64_t j) HEDGEROW_FUNCTOR {
    step_columns<decltype(nv)::value, kAdd>(features, cols, fk, v + j * lanes, fq, factor,
                                            state + j * lanes, out + j * lanes);
  });
}

// Key features relative to m [2 width], which is raised (and the state with it) where y exceeds it
// or nothing was seen; natural units.
HWY_INLINE void step_key_features(int64_t width, int64_t cols, const float* y, float* s, float* z,
                                  float* m, float* fk) {
  const FloatTag d;
  const FloatVec slack = hn::Set(d, kSlack * kLn2);
  for (int64_t i = 0; i < 2 * width; i += float_lanes()) {
    const FloatVec v = hn::LoadU(d, y + i % width);
    const FloatVec x = i < width ? v : hn::Neg(v);
    FloatVec ref = hn::LoadU(d, m + i);
    const auto raised =
        hn::Or(hn::Gt(x, hn::Add(ref, slack)), hn::Eq(hn::LoadU(d, z + i), hn::Zero(d)));
    if (!hn::AllFalse(d, raised)) {
      HWY_ALIGN float scale[HWY_MAX_BYTES / sizeof(float)];
      const FloatVec change = hn::Min(hn::Sub(ref, x), hn::Set(d, 80.0f));
      hn::StoreU(hn::IfThenElse(raised, exp_vec(change), hn::Set(d, 1.0f)), d, scale);
      ref = hn::IfThenElse(raised, x, ref);
      hn::StoreU(ref, d, m + i);
      for (int64_t l = 0; l < float_lanes(); l++) {
        if (scale[l] == 1.0f) continue;
        z[i + l] *= scale[l];
        for (int64_t j = 0; j < cols; j++) s[(i + l) * cols + j] *= scale[l];
      }
    }
    hn::StoreU(exp_vec(hn::Sub(x, ref)), d, fk + i);
  }
}

HWY_INLINE void step_query_features(int64_t width, const float* y, const float* m, float* fq) {
  const FloatTag d;
  FloatVec top = hn::Set(d, 4 * kUnset);
  for (int64_t i = 0; i < 2 * width; i += float_lanes()) {
    const FloatVec v = hn::LoadU(d, y + i % width);
    const FloatVec x = hn::Add(i < width ? v : hn::Neg(v), hn::LoadU(d, m + i));
    top = hn::Max(top, x);
    hn::StoreU(x, d, fq + i);
  }
  top = hn::Set(d, reduce_max(top));
  for (int64_t i = 0; i < 2 * width; i += float_lanes()) {
    hn::StoreU(exp_vec(hn::Sub(hn::LoadU(d, fq + i), top)), d, fq + i);
  }
}

// One key/value head of one sequence.
void step_head(const HedgehogStep& p, const FeatureShape& s, int64_t b, int64_t kv, float* y,
               float* fk, float* fq) {
  const int64_t F = s.features, Dv = p.value_dim, group = p.heads / p.kv_heads;
  const int64_t index = b * p.kv_heads + kv;
  float* state = static_cast<float*>(p.s) + index * F * Dv;
  float* z = static_cast<float*>(p.z) + index * F;
  float* m = s.exact() ? static_cast<float*>(p.m) + index * F : nullptr;
  auto project_row = [&](const ConstTensor& x, const void* w, const void* bias, int64_t h) {
    const float* row_x = row<float>(x, b, h, 0);
    if (!s.given) {
      project_token(s.dim, s.width, row_x, static_cast<const float*>(w) + h * s.dim * s.width,
                    bias ? static_cast<const float*>(bias) + h * s.width : nullptr, y);
    }
    return row_x;
  };
  const float* k = project_row(p.k, p.wk, p.bk, kv);
  const float* keys = s.given ? k : fk;
  if (s.exact()) {
    step_key_features(s.width, Dv, y, state, z, m, fk);
  } else if (!s.given) {
    map_rows(1, s, y, k, 0, nullptr, fk);
  }
  add_rows(1, F, keys, F, nullptr, z);
  const float* v = row<float>(p.v, b, kv, 0);
  for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
    const float* q = project_row(p.q, p.wq, p.bq, h);
    const float* queries = s.given ? q : fq;
    if (s.exact()) {
      step_query_features(s.width, y, m, fq);
    } else if (!s.given) {
      map_rows(1, s, y, q, 0, nullptr, fq);
    }
    const float den = vec_dot(F, queries, z);
    const float inv = den == 0 ? 0.0f : 1.0f / den;
    float* out = row<float>(p.out, b, h, 0);
    if (h == kv * group) {
      step_state<true>(F, Dv, keys, v, queries, inv, state, out);
    } else {
      step_state<false>(F, Dv, keys, v, queries, inv, state, out);
    }
  }
}

// Whether everything can be read and written where it lies; false: nothing was done.
bool run_step(const HedgehogStep& p, bool given) {
  const FeatureShape s = feature_shape(given, p.map, p.dim, p.width);
  if (p.dtype != DType::kFloat32 || s.half != s.half_pad || p.value_dim % float_lanes() != 0 ||
      (!given && s.width != s.width_pad) || p.kv_heads == 0) {
    return false;
  }
  const int64_t heads = p.batch * p.kv_heads;
  auto head = [&](int64_t i, int64_t) {
    Arena arena(s.width_pad + 2 * s.padded + 64);
    float* y = arena.take(s.width_pad);
    float* fk = arena.take(s.padded);
    step_head(p, s, i / p.kv_heads, i % p.kv_heads, y, fk, arena.take(s.padded));
  };
  // Waking threads costs more than a few heads (0.5 us each at 64 wide).
  constexpr int64_t kSerialFloats = 1 << 19;
  if (heads * s.features * p.value_dim <= kSerialFloats) {
    for (int64_t i = 0; i < heads; i++) head(i, 0);
  } else {
    parallel_for(heads, head);
  }
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels::linear
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hedgerow::kernels::linear {
HWY_EXPORT(run_step);

void attention_step(const HedgehogStep& p, bool given) {
  if (!HWY_DYNAMIC_DISPATCH(run_step)(p, given)) {
    attention_forward(ForwardCall{as_forward(p), given});
  }
}
}  // namespace hedgerow::kernels::linear
#endif  // HWY_ONCE
