// Packing and masks of the softmax kernels. Include after hwy/foreach_target.h.
#include <cstdint>
#include <limits>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_SOFTMAX_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_SOFTMAX_TILE_INL_H_
#undef HEDGEROW_KERNELS_SOFTMAX_TILE_INL_H_
#else
#define HEDGEROW_KERNELS_SOFTMAX_TILE_INL_H_
#endif

#include "kernels/common/elements.h"
#include "kernels/common/gemm-inl.h"
#include "kernels/common/pack-inl.h"
#include "kernels/softmax/softmax_internal.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {

inline constexpr float kLog2e = 1.44269504f;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rows [begin, end) of head (b, h), begin a multiple of the panel width, into transposed panels
// [panel][width][panel width]; columns from `end` to the panel's end are 0. staging holds one
// panel of rows.
HWY_MAYBE_UNUSED static void pack_panels(DType dtype, const ConstTensor& x, int64_t b, int64_t h,
                                         int64_t begin, int64_t end, int64_t width,
                                         float* HWY_RESTRICT panels, float* HWY_RESTRICT staging) {
  const int64_t pw = panel_width();
  for (int64_t s = begin; s < end; s += pw) {
    const int64_t n = std::min(pw, end - s);
    for (int64_t r = 0; r < n; r++) {
      load_row(dtype, row_pointer(dtype, x, b, h, s + r), width, width, 1.0f, staging + r * width);
    }
    std::fill(staging + n * width, staging + pw * width, 0.0f);
    transpose(pw, width, staging, width, panels + s * width, pw);
  }
}

// bias[0 .. n): the mask of query t at keys s0 .. s0 + n as addends; only -inf excludes.
HWY_MAYBE_UNUSED static void mask_row(const Mask& mask, int64_t b, int64_t h, int64_t t, int64_t s0,
                                      int64_t n, float* HWY_RESTRICT bias) {
  const int64_t at =
      b * mask.batch_stride + h * mask.head_stride + t * mask.query_stride + s0 * mask.key_stride;
  const int64_t step = mask.key_stride;
  if (mask.kind == MaskKind::kBool) {
    const uint8_t* m = static_cast<const uint8_t*>(mask.data) + at;
    if (step == 1) {
      for (int64_t i = 0; i < n; i++) bias[i] = m[i] ? 0.0f : -kInfinity;
    } else {
      for (int64_t i = 0; i < n; i++) bias[i] = m[i * step] ? 0.0f : -kInfinity;
    }
  } else if (mask.kind == MaskKind::kFloat32) {
    const float* m = static_cast<const float*>(mask.data) + at;
    for (int64_t i = 0; i < n; i++) bias[i] = m[i * step];
  } else {
    const double* m = static_cast<const double*>(mask.data) + at;
    const double lowest = std::numeric_limits<float>::lowest();
    for (int64_t i = 0; i < n; i++) {
      const double x = m[i * step];
      bias[i] = static_cast<float>(x < lowest && x != -kInfinity ? lowest : x);
    }
  }
}

// One register tile of C = A B - start[row]: scores relative to their row's reference.
template <int MR>
HWY_NOINLINE HWY_MAYBE_UNUSED static void shifted_tile(int64_t depth, const float* HWY_RESTRICT a,
                                                       int64_t a_row, const float* HWY_RESTRICT b,
                                                       int64_t b_row,
                                                       const float* HWY_RESTRICT start,
                                                       float* HWY_RESTRICT c, int64_t c_row) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  multiply_tile<MR, kTileVecs>(
      depth, a, a_row, 1, b, b_row,
      [=](int r, int) HEDGEROW_FUNCTOR { return hn::Set(d, -start[r]); },
      [=](int r, int j, FloatVec x)
          HEDGEROW_FUNCTOR { hn::StoreU(x, d, c + r * c_row + j * lanes); });
}

// Score plus mask: -inf where the mask excludes, whatever the score is; finite otherwise.
HWY_INLINE FloatVec add_bias(FloatVec score, FloatVec bias) {
  const FloatTag d;
  const FloatVec excluded = hn::Set(d, -kInfinity);
  const FloatVec sum =
      hn::Max(hn::Add(score, bias), hn::Set(d, std::numeric_limits<float>::lowest()));
  return hn::IfThenElse(hn::Eq(bias, excluded), excluded, sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_SOFTMAX_TILE_INL_H_
