// Small matrix products of the kernels, built of one register tile: MR rows by NV vectors of
// accumulators, A read by broadcasts, B by contiguous vectors. A[m][k] is at
// a[m * a_row + k * a_depth], so that A and its transpose are both read from where they lie.
// Include after hwy/foreach_target.h.
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_COMMON_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_COMMON_GEMM_INL_H_
#undef HEDGEROW_KERNELS_COMMON_GEMM_INL_H_
#else
#define HEDGEROW_KERNELS_COMMON_GEMM_INL_H_
#endif

#include "kernels/common/math-inl.h"

// Loops over registers must be unrolled whole, or accumulators live in memory (a factor of 2.4).
#undef HEDGEROW_UNROLL
#define HEDGEROW_UNROLL _Pragma("GCC unroll 16")
// Functors of the register tile: part of the tile's code, not calls.
#undef HEDGEROW_FUNCTOR
#define HEDGEROW_FUNCTOR HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {

// Register tile per target: accumulators + NV vectors of B + 1 broadcast fit the register file
// (32 on AVX-512 and Arm, 16 elsewhere; without FMA one more register holds the product).
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
inline constexpr int kTileRows = 6, kTileVecs = 4;
#elif HWY_ARCH_ARM_A64
inline constexpr int kTileRows = 6, kTileVecs = 4;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int kTileRows = 6, kTileVecs = 2;
#else
inline constexpr int kTileRows = 4, kTileVecs = 2;
#endif

// Columns of a full panel of B.
HWY_INLINE int64_t panel_width() { return kTileVecs * float_lanes(); }
HWY_INLINE int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// c[r][j] += sum_k A[r][k] B[k][j], B's rows at b + k * b_row.
template <int MR, int NV>
HWY_INLINE void fma_steps(FloatVec (&c)[MR][NV], int64_t depth, const float* HWY_RESTRICT a,
                          int64_t a_row, int64_t a_depth, const float* HWY_RESTRICT b,
                          int64_t b_row) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  for (int64_t k = 0; k < depth; k++) {
    FloatVec bv[NV];
    HEDGEROW_UNROLL
    for (int j = 0; j < NV; j++) bv[j] = hn::LoadU(d, b + j * lanes);
    b += b_row;
    HEDGEROW_UNROLL
    for (int r = 0; r < MR; r++) {
      const FloatVec av = hn::Set(d, a[r * a_row]);
      HEDGEROW_UNROLL
      for (int j = 0; j < NV; j++) c[r][j] = hn::MulAdd(av, bv[j], c[r][j]);
    }
    a += a_depth;
  }
}

// One register tile: c[r][j] = init(r, j); c += A B; done(r, j, c[r][j]).
template <int MR, int NV, class Init, class Done>
HWY_INLINE void multiply_tile(int64_t depth, const float* HWY_RESTRICT a, int64_t a_row,
                              int64_t a_depth, const float* HWY_RESTRICT b, int64_t b_row,
                              Init init, Done done) {
  FloatVec c[MR][NV];
  HEDGEROW_UNROLL
  for (int r = 0; r < MR; r++) {
    HEDGEROW_UNROLL
    for (int j = 0; j < NV; j++) c[r][j] = init(r, j);
  }
  fma_steps<MR, NV>(c, depth, a, a_row, a_depth, b, b_row);
  HEDGEROW_UNROLL
  for (int r = 0; r < MR; r++) {
    HEDGEROW_UNROLL
    for (int j = 0; j < NV; j++) done(r, j, c[r][j]);
  }
}

// body(integral_constant<int, MR>, first) over [0, rows): full register tiles, then tails of
// 4, 2 and 1 rows.
template <class Body>
HWY_INLINE void for_row_tiles(int64_t rows, Body body) {
  int64_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows) body(std::integral_constant<int, kTileRows>(), r);
  if (kTileRows > 4 && rows - r >= 4) {
    body(std::integral_constant<int, 4>(), r);
    r += 4;
  }
  if (rows - r >= 2) {
    body(std::integral_constant<int, 2>(), r);
    r += 2;
  }
  if (rows - r >= 1) body(std::integral_constant<int, 1>(), r);
}

// body(integral_constant<int, NV>, first vector) over [0, vecs): full panels, then the rest.
template <class Body>
HWY_INLINE void for_vec_panels(int64_t vecs, Body body) {
  int64_t j = 0;
  for (; j + kTileVecs <= vecs; j += kTileVecs) body(std::integral_constant<int, kTileVecs>(), j);
  if constexpr (kTileVecs > 2) {
    if (vecs - j == 3) return body(std::integral_constant<int, 3>(), j);
    if (vecs - j == 2) return body(std::integral_constant<int, 2>(), j);
  }
  if (vecs - j == 1) body(std::integral_constant<int, 1>(), j);
}

// C (+)= A B for one register tile. A call per tile, so that all products of a file share the code.
template <int MR, int NV>
HWY_NOINLINE HWY_MAYBE_UNUSED static void gemm_tile(int64_t depth, const float* HWY_RESTRICT a,
                                                    int64_t a_row, int64_t a_depth,
                                                    const float* HWY_RESTRICT b, int64_t b_row,
                                                    float* HWY_RESTRICT c, int64_t c_row,
                                                    bool accumulate) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  const auto store = [=](int r, int j, FloatVec x)
                         HEDGEROW_FUNCTOR { hn::StoreU(x, d, c + r * c_row + j * lanes); };
  if (accumulate) {
    multiply_tile<MR, NV>(
        depth, a, a_row, a_depth, b, b_row,
        [=](int r, int j) HEDGEROW_FUNCTOR { return hn::LoadU(d, c + r * c_row + j * lanes); },
        store);
  } else {
    multiply_tile<MR, NV>(
        depth, a, a_row, a_depth, b, b_row, [=](int, int) HEDGEROW_FUNCTOR { return hn::Zero(d); },
        store);
  }
}

// C[rows][vecs vectors] = (accumulate ? C : 0) + A[rows][depth] B[depth][vecs vectors]; B and C are
// padded to whole vectors. 2 rows depth vecs lanes FLOPs.
HWY_NOINLINE HWY_MAYBE_UNUSED static void gemm(int64_t rows, int64_t vecs, int64_t depth,
                                               const float* HWY_RESTRICT a, int64_t a_row,
                                               int64_t a_depth, const float* HWY_RESTRICT b,
                                               int64_t b_row, float* HWY_RESTRICT c, int64_t c_row,
                                               bool accumulate) {
  const int64_t lanes = float_lanes();
  for_vec_panels(vecs, [=](auto nv, int64_t j) HEDGEROW_FUNCTOR {
    for_row_tiles(rows, [=](auto mr, int64_t r) HEDGEROW_FUNCTOR {
      gemm_tile<decltype(mr)::value, decltype(nv)::value>(
          depth, a + r * a_row, a_row, a_depth, b + j * lanes, b_row, c + r * c_row + j * lanes,
          c_row, accumulate);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_COMMON_GEMM_INL_H_
