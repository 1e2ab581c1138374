// Feature maps of chunks of tokens: projection, maps, and the references that keep `exp` exact.
//
// Features of a chunk are rows [n][padded]. Maps made of two halves (exp, softmax, softmax_joint)
// keep each half padded to whole vectors: [E, pad | E, pad]; pads are 0. Exponents of `exp` are in
// log2 units, log2(e) being folded into the packed weight.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_LINEAR_FEATURES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_LINEAR_FEATURES_INL_H_
#undef HEDGEROW_KERNELS_LINEAR_FEATURES_INL_H_
#else
#define HEDGEROW_KERNELS_LINEAR_FEATURES_INL_H_
#endif

#include "kernels/common/gemm-inl.h"
#include "kernels/common/math-inl.h"
#include "kernels/common/pack-inl.h"
#include "kernels/linear/linear_internal.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels::linear {
namespace HWY_NAMESPACE {

using kernels::HWY_NAMESPACE::exp2_vec;
using kernels::HWY_NAMESPACE::exp_vec;
using kernels::HWY_NAMESPACE::float_lanes;
using kernels::HWY_NAMESPACE::FloatTag;
using kernels::HWY_NAMESPACE::FloatVec;
using kernels::HWY_NAMESPACE::for_row_tiles;
using kernels::HWY_NAMESPACE::for_vec_panels;
using kernels::HWY_NAMESPACE::gemm;
using kernels::HWY_NAMESPACE::load_row;
using kernels::HWY_NAMESPACE::multiply_tile;
using kernels::HWY_NAMESPACE::reduce_max;
using kernels::HWY_NAMESPACE::reduce_sum;
using kernels::HWY_NAMESPACE::round_up;
using kernels::HWY_NAMESPACE::store_row;
using kernels::HWY_NAMESPACE::transpose;
namespace hn = hwy::HWY_NAMESPACE;

// Tokens per chunk: features, values and state of one chunk stay in L2 beside the weights.
inline constexpr int64_t kChunk = 64;
// Plain features 2^y and 2^-y are used while all |y| stay below this (21 in natural units): then
// sums of T 2^60 and their reciprocals times a small gradient are still normal numbers.
inline constexpr float kPlainBound = 30.0f;
// A reference is raised when a key exceeds it by this much, so that relative features stay below
// 2^20 and a sum of T of them below 2^20 T.
inline constexpr float kSlack = 20.0f;
// Tokens of a step or a chunk share references raised for all of them while these rise by no more
// than this: an early query then sees features that are smaller than need be by 2^40, which floats
// hold, and drops nothing above 2^-86 of its largest.
inline constexpr float kShare = 40.0f;
// Reference of a feature that has seen no key, exponent of a removed key and of padding. Twice it
// is still a number.
inline constexpr float kUnset = -1e37f;
inline constexpr float kLog2e = 1.44269504f;
inline constexpr float kLn2 = 0.69314718f;

struct FeatureShape {
  bool given;
  FeatureMap map;
  int64_t dim, width, width_pad;  // D, E
  int64_t halves, half, half_pad;
  int64_t features, padded;  // F; halves * half_pad
  bool exact() const { return !given && map == FeatureMap::kExp; }
  // Where feature f lies in a padded row.
  int64_t at(int64_t f) const { return f < half ? f : half_pad + f - half; }
};

HWY_INLINE FeatureShape feature_shape(bool given, FeatureMap map, int64_t dim, int64_t width) {
  FeatureShape s{};
  s.given = given;
  s.map = map;
  s.dim = dim;
  s.width = width;
  s.width_pad = round_up(width, float_lanes());
  s.features = given ? dim : feature_width(map, width);
  s.halves = !given && s.features == 2 * width && map <= FeatureMap::kSoftmaxJoint ? 2 : 1;
  s.half = s.features / s.halves;
  s.half_pad = round_up(s.half, float_lanes());
  s.padded = s.halves * s.half_pad;
  return s;
}

// The weights of one head: packed [D][width_pad] times `scale`, and the bias likewise.
HWY_INLINE void pack_weight(DType dtype, const void* weight, const void* bias, int64_t h,
                            const FeatureShape& s, float scale, float* w, float* b) {
  const int64_t bytes = element_bytes(dtype);
  const char* from = static_cast<const char*>(weight) + h * s.dim * s.width * bytes;
  for (int64_t d = 0; d < s.dim; d++) {
    load_row(dtype, from + d * s.width * bytes, s.width, s.width_pad, scale, w + d * s.width_pad);
  }
  std::fill(b, b + s.width_pad, 0.0f);
  if (bias != nullptr) {
    load_row(dtype, static_cast<const char*>(bias) + h * s.width * bytes, s.width, s.width_pad,
             scale, b);
  }
}

// y [n][width_pad] = x W + b.
HWY_NOINLINE HWY_MAYBE_UNUSED static void project(int64_t n, const FeatureShape& s,
                                                  const float* HWY_RESTRICT x, int64_t x_row,
                                                  const float* HWY_RESTRICT w,
                                                  const float* HWY_RESTRICT b,
                                                  float* HWY_RESTRICT y) {
  const FloatTag d;
  const int64_t lanes = float_lanes(), width = s.width_pad, depth = s.dim;
  for_vec_panels(width / lanes, [=](auto nv, int64_t j) HEDGEROW_FUNCTOR {
    for_row_tiles(n, [=](auto mr, int64_t r) HEDGEROW_FUNCTOR {
      float* out = y + r * width + j * lanes;
      const float* start = b + j * lanes;
      multiply_tile<decltype(mr)::value, decltype(nv)::value>(
          depth, x + r * x_row, x_row, 1, w + j * lanes, width,
          [=](int, int c) HEDGEROW_FUNCTOR { return hn::LoadU(d, start + c * lanes); },
          [=](int i, int c, FloatVec v)
              HEDGEROW_FUNCTOR { hn::StoreU(v, d, out + i * width + c * lanes); });
    });
  });
}

// 2^x for |x| <= 126 (garbage elsewhere).
HWY_INLINE FloatVec small_exp2(FloatVec x) {
  const FloatTag d;
  const FloatVec n = hn::Round(x);
  const FloatVec f = hn::Sub(x, n);
  FloatVec p = hn::Set(d, 0.0013264727f);
  p = hn::MulAdd(p, f, hn::Set(d, 0.009671513f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.055507336f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.24022242f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.69314700f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return FloatVec{_mm512_scalef_ps(p.raw, n.raw)};
#else
  const hn::RebindToSigned<FloatTag> di;
  const auto shift = hn::ShiftLeft<23>(hn::ConvertTo(di, n));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), shift));
#endif
}

// 2^x for x <= 126, 0 from -126 down.
HWY_INLINE FloatVec bounded_exp2(FloatVec x) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return small_exp2(x);  // its scaling by a power of 2 saturates
#else
  const FloatTag d;
  const FloatVec lowest = hn::Set(d, -126.0f);
  return hn::IfThenElseZero(hn::Gt(x, lowest), small_exp2(hn::Max(x, lowest)));
#endif
}

// 1 / x for x in [2^-44, 2^44], within 2 ULP.
HWY_INLINE FloatVec small_reciprocal(FloatVec x) {
  const FloatTag d;
  FloatVec r = hn::ApproximateReciprocal(x);
  r = hn::MulAdd(r, hn::NegMulAdd(x, r, hn::Set(d, 1.0f)), r);
#if !(HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86)  // 12 bits to start with instead of 14
  r = hn::MulAdd(r, hn::NegMulAdd(x, r, hn::Set(d, 1.0f)), r);
#endif
  return r;
}

// Zeroes the padding of both halves.
HWY_INLINE void zero_pads(int64_t n, const FeatureShape& s, float* f) {
  if (s.half == s.half_pad) return;
  for (int64_t r = 0; r < n; r++) {
    for (int64_t p = 0; p < s.halves; p++) {
      std::fill(f + r * s.padded + p * s.half_pad + s.half, f + r * s.padded + (p + 1) * s.half_pad,
                0.0f);
    }
  }
}

// Rows that will be needed soon and lie too far apart for the hardware to foresee them.
struct Ahead {
  uintptr_t data = 0;             // may lie outside its tensor: nothing is read
  int64_t stride = 0, bytes = 0;  // of a row
  HWY_INLINE void fetch(int64_t r) const {
    for (int64_t i = 0; i < bytes; i += 64) {
      __builtin_prefetch(reinterpret_cast<const void*>(data + r * stride + i), 0, 2);
    }
  }
  HWY_INLINE void fetch_to_write(int64_t r) const {
    for (int64_t i = 0; i < bytes; i += 64) {
      __builtin_prefetch(reinterpret_cast<const void*>(data + r * stride + i), 1);
    }
  }
};

template <typename Tensor>
HWY_INLINE Ahead ahead(DType dtype, const Tensor& x, int64_t b, int64_t h, int64_t row,
                       int64_t width) {
  const int64_t bytes = element_bytes(dtype);
  const int64_t at = b * x.batch_stride + h * x.head_stride + row * x.row_stride;
  return Ahead{reinterpret_cast<uintptr_t>(x.data) + at * bytes, x.row_stride * bytes,
               width * bytes};
}

// f [n][padded] = [2^y, 2^-y]; returns max |y|: above kPlainBound f is garbage.
HWY_NOINLINE HWY_MAYBE_UNUSED static float plain_features(int64_t n, const FeatureShape& s,
                                                          const float* HWY_RESTRICT y,
                                                          float* HWY_RESTRICT f,
                                                          const Ahead reads = {},
                                                          const Ahead writes = {}) {
  const FloatTag d;
  const int64_t lanes = float_lanes(), half = s.half_pad;
  FloatVec top = hn::Zero(d);
  for (int64_t r = 0; r < n; r++) {
    reads.fetch(r);
    writes.fetch_to_write(r);
    for (int64_t e = 0; e < half; e += lanes) {
      const FloatVec v = hn::LoadU(d, y + r * half + e);
      top = hn::Max(top, hn::Abs(v));
      const FloatVec p = small_exp2(v);
      hn::StoreU(p, d, f + r * 2 * half + e);
      hn::StoreU(small_reciprocal(p), d, f + r * 2 * half + half + e);
    }
  }
  zero_pads(n, s, f);
  return reduce_max(top);
}

// Signed exponents x [n][padded] = [y, -y], kUnset in padding and in rows whose keep byte is 0.
HWY_INLINE void signed_exponents(int64_t n, const FeatureShape& s, const float* y,
                                 const uint8_t* keep, float* x) {
  for (int64_t r = 0; r < n; r++) {
    float* row = x + r * s.padded;
    if (keep != nullptr && !keep[r]) {
      std::fill(row, row + s.padded, kUnset);
      continue;
    }
    for (int64_t e = 0; e < s.half; e++) row[e] = y[r * s.half_pad + e];
    for (int64_t e = 0; e < s.half; e++) row[s.half_pad + e] = -y[r * s.half_pad + e];
    for (int64_t e = s.half; e < s.half_pad; e++) row[e] = row[s.half_pad + e] = kUnset;
  }
}

// f = 2^(x + sign * ref + shift[r]) for rows [0, n); keep removes rows.
HWY_NOINLINE HWY_MAYBE_UNUSED static void relative_features(
    int64_t n, const FeatureShape& s, const float* HWY_RESTRICT x, const float* HWY_RESTRICT ref,
    float sign, const float* shift, const uint8_t* keep, float* HWY_RESTRICT f) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  for (int64_t r = 0; r < n; r++) {
    float* out = f + r * s.padded;
    if (keep != nullptr && !keep[r]) {
      std::fill(out, out + s.padded, 0.0f);
      continue;
    }
    const FloatVec by = hn::Set(d, shift ? shift[r] : 0.0f), sg = hn::Set(d, sign);
    for (int64_t i = 0; i < s.padded; i += lanes) {
      const FloatVec e = hn::MulAdd(sg, hn::LoadU(d, ref + i), hn::LoadU(d, x + r * s.padded + i));
      hn::StoreU(bounded_exp2(hn::Add(e, by)), d, out + i);
    }
  }
  zero_pads(n, s, f);
}

// max over the features of x + ref.
HWY_INLINE float row_maximum(const FeatureShape& s, const float* x, const float* ref) {
  const FloatTag d;
  FloatVec top = hn::Set(d, 4 * kUnset);
  for (int64_t i = 0; i < s.padded; i += float_lanes()) {
    top = hn::Max(top, hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, ref + i)));
  }
  return reduce_max(top);
}

// w[4 i + j] = sum over the features of 2^(xq_i + xk_j - maximum_i) for j <= i < n (at most 4),
// from the exponents themselves; 0 for removed keys and everywhere else.
HWY_NOINLINE HWY_MAYBE_UNUSED static void direct_pairs(int64_t n, const FeatureShape& s,
                                                       const float* xq, const float* xk,
                                                       const float* maximum, const uint8_t* keep,
                                                       float* w) {
  const FloatTag d;
  std::fill(w, w + 16, 0.0f);
  for (int64_t i = 0; i < n; i++) {
    const FloatVec top = hn::Set(d, maximum[i]);
    for (int64_t j = 0; j <= i; j++) {
      if (keep != nullptr && !keep[j]) continue;
      FloatVec sum = hn::Zero(d);
      for (int64_t x = 0; x < s.padded; x += float_lanes()) {
        const FloatVec q = hn::LoadU(d, xq + i * s.padded + x);
        const FloatVec k = hn::LoadU(d, xk + j * s.padded + x);
        sum = hn::Add(sum, bounded_exp2(hn::Sub(hn::Add(q, k), top)));
      }
      w[4 * i + j] = reduce_sum(sum);
    }
  }
}

// Raises top to row x where that is larger.
HWY_INLINE void raise_to(const FeatureShape& s, const float* x, float* top) {
  const FloatTag d;
  for (int64_t i = 0; i < s.padded; i += float_lanes()) {
    hn::StoreU(hn::Max(hn::LoadU(d, top + i), hn::LoadU(d, x + i)), d, top + i);
  }
}

// Whether any of rows [0, n) of x exceeds its reference by `slack`.
HWY_INLINE bool exceeds(int64_t n, const FeatureShape& s, const float* x, const float* ref,
                        float slack = kSlack) {
  const FloatTag d;
  for (int64_t i = 0; i < s.padded; i += float_lanes()) {
    const FloatVec bound = hn::Add(hn::LoadU(d, ref + i), hn::Set(d, slack));
    FloatVec top = hn::LoadU(d, x + i);
    for (int64_t r = 1; r < n; r++) top = hn::Max(top, hn::LoadU(d, x + r * s.padded + i));
    if (!hn::AllFalse(d, hn::Gt(top, bound))) return true;
  }
  return false;
}

// Raises references to the largest of rows [0, n) of x where it exceeds them by kSlack;
// scale [padded] = 2^(old - new) is what a state relative to the old ones is to be multiplied by.
HWY_INLINE void raise_references(int64_t n, const FeatureShape& s, const float* x, float* ref,
                                 float* scale) {
  const FloatTag d;
  for (int64_t i = 0; i < s.padded; i += float_lanes()) {
    const FloatVec old = hn::LoadU(d, ref + i);
    FloatVec top = hn::LoadU(d, x + i);
    for (int64_t r = 1; r < n; r++) top = hn::Max(top, hn::LoadU(d, x + r * s.padded + i));
    const FloatVec now = hn::IfThenElse(hn::Gt(top, hn::Add(old, hn::Set(d, kSlack))), top, old);
    hn::StoreU(now, d, ref + i);
    hn::StoreU(bounded_exp2(hn::Sub(old, now)), d, scale + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels::linear
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_LINEAR_FEATURES_INL_H_
