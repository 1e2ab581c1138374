// Moving tensors into the kernels' float32 scratch and back: conversion, padding, transposition.
// Include after hwy/foreach_target.h.
#include <bit>
#include <cstdint>
#include <cstring>

#include "hedgerow/kernels/types.h"
#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_COMMON_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_COMMON_PACK_INL_H_
#undef HEDGEROW_KERNELS_COMMON_PACK_INL_H_
#else
#define HEDGEROW_KERNELS_COMMON_PACK_INL_H_
#endif

#include "kernels/common/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// dst[0 .. n) = scale * src as float32, dst[n .. padded) = 0; src is float32 or bfloat16.
HWY_INLINE void load_row(DType dtype, const void* HWY_RESTRICT src, int64_t n, int64_t padded,
                         float scale, float* HWY_RESTRICT dst) {
  if (dtype == DType::kFloat32) {
    const float* s = static_cast<const float*>(src);
    for (int64_t i = 0; i < n; i++) dst[i] = scale * s[i];
  } else {
    const uint16_t* s = static_cast<const uint16_t*>(src);
    for (int64_t i = 0; i < n; i++) {
      dst[i] = scale * std::bit_cast<float>(static_cast<uint32_t>(s[i]) << 16);
    }
  }
  for (int64_t i = n; i < padded; i++) dst[i] = 0.0f;
}

// dst = scale * src in dst's type, rounded to nearest even.
HWY_INLINE void store_row(DType dtype, const float* HWY_RESTRICT src, int64_t n, float scale,
                          void* HWY_RESTRICT dst) {
  if (dtype == DType::kFloat32) {
    float* out = static_cast<float*>(dst);
    for (int64_t i = 0; i < n; i++) out[i] = scale * src[i];
  } else {
    uint16_t* out = static_cast<uint16_t*>(dst);
    for (int64_t i = 0; i < n; i++) out[i] = bfloat16_bits(scale * src[i]);
  }
}

// Whether all n values are finite.
HWY_INLINE bool all_finite(const float* HWY_RESTRICT x, int64_t n) {
  float sum = 0.0f;  // x * 0 is 0 or NaN, in any order
  HWY_ALIGN float part[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int j = 0; j < 16; j++) part[j] += x[i + j] * 0.0f;
  }
  for (; i < n; i++) sum += x[i] * 0.0f;
  for (int j = 0; j < 16; j++) sum += part[j];
  return sum == 0.0f;
}

// dst[c][r] = src[r][c] for r < rows, c < cols; row strides src_row, dst_row.
HWY_NOINLINE HWY_MAYBE_UNUSED static void transpose(int64_t rows, int64_t cols,
                                                    const float* HWY_RESTRICT src, int64_t src_row,
                                                    float* HWY_RESTRICT dst, int64_t dst_row) {
#if HWY_TARGET == HWY_SCALAR
  const int64_t rows4 = 0, cols4 = 0;
#else
  const int64_t rows4 = rows / 4 * 4, cols4 = cols / 4 * 4;
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> dd;
  for (int64_t c = 0; c < cols4; c += 4) {
    for (int64_t r = 0; r < rows4; r += 4) {
      const float* s = src + r * src_row + c;
      const auto r0 = hn::LoadU(d, s), r1 = hn::LoadU(d, s + src_row);
      const auto r2 = hn::LoadU(d, s + 2 * src_row), r3 = hn::LoadU(d, s + 3 * src_row);
      // pairs: a = r0[0] r1[0] r0[1] r1[1], ...
      const auto a = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1));
      const auto b = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
      const auto e = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
      const auto f = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
      float* out = dst + c * dst_row + r;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, a, b)), d, out);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, a, b)), d, out + dst_row);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, e, f)), d, out + 2 * dst_row);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, e, f)), d, out + 3 * dst_row);
    }
  }
#endif
  for (int64_t c = 0; c < cols; c++) {
    for (int64_t r = c < cols4 ? rows4 : 0; r < rows; r++) {
      dst[c * dst_row + r] = src[r * src_row + c];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_COMMON_PACK_INL_H_
