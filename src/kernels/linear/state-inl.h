// The recurrent state of linear attention and how tokens pass through it.
//
// A state is a matrix [rows][cols] to which every token adds an outer product row x col, and which
// every token reads through a vector over the rows. It lies in panels of `panel` columns, each
// [rows][panel], so that one panel (16 KB for 128 features) stays in L1 while the tokens of a chunk
// pass, four at a time.
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_LINEAR_STATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_LINEAR_STATE_INL_H_
#undef HEDGEROW_KERNELS_LINEAR_STATE_INL_H_
#else
#define HEDGEROW_KERNELS_LINEAR_STATE_INL_H_
#endif

#include "kernels/common/gemm-inl.h"
#include "kernels/common/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels::linear {
namespace HWY_NAMESPACE {

using kernels::HWY_NAMESPACE::float_lanes;
using kernels::HWY_NAMESPACE::FloatTag;
using kernels::HWY_NAMESPACE::FloatVec;
using kernels::HWY_NAMESPACE::for_row_tiles;
using kernels::HWY_NAMESPACE::gemm;
using kernels::HWY_NAMESPACE::multiply_tile;
using kernels::HWY_NAMESPACE::round_up;
namespace hn = hwy::HWY_NAMESPACE;

// Tokens per step.
inline constexpr int kStep = 4;
// Vectors per panel of the stepped form: 4 x 2 accumulators, 4 x 2 columns and the state row fit 32
// registers; with 16, half of it.
#if (HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86) || HWY_ARCH_ARM_A64
inline constexpr int kStepVecs = 2;
#else
inline constexpr int kStepVecs = 1;
#endif

struct State {
  float* data;
  int64_t rows, cols;  // cols: a multiple of the vector length
  int64_t panel;       // columns per panel
  int64_t panels() const { return cols == 0 ? 0 : (cols + panel - 1) / panel; }
  float* panel_data(int64_t p) const { return data + p * rows * panel; }
  int64_t panel_cols(int64_t p) const { return std::min(panel, cols - p * panel); }
  float& at(int64_t r, int64_t c) const {
    return data[c / panel * rows * panel + r * panel + c % panel];
  }
  int64_t floats() const { return panels() * rows * panel; }
};

// Row-major when `panel` is 0.
HWY_INLINE State make_state(int64_t rows, int64_t cols, int64_t panel) {
  return State{nullptr, rows, cols, std::max<int64_t>(panel == 0 ? cols : panel, 1)};
}
HWY_INLINE int64_t step_panel() { return kStepVecs * float_lanes(); }

// body(integral_constant NV, p, first column) for each panel of the stepped form.
template <class Body>
HWY_INLINE void for_step_panels(const State& s, Body body) {
  for (int64_t p = 0; p < s.panels(); p++) {
    if (kStepVecs == 2 && s.panel_cols(p) == 2 * float_lanes()) {
      body(std::integral_constant<int, kStepVecs>(), p, p * s.panel);
    } else {
      body(std::integral_constant<int, 1>(), p, p * s.panel);
    }
  }
}

// One step of 4 tokens on a panel. reads[i] over the rows: out_i = reads_i . S of before the step,
// plus pairs[4 i + j] cols_j over the tokens j of the step, times factor[i] (1 if null); then S,
// its row r times scale[r] with kRescale, += adds_i x cols_i. Rows of reads, adds and cols at the
// given distances.
template <int NV, bool kReversed, bool kRescale = false>
HWY_INLINE void step_panel_tokens(int64_t rows, float* HWY_RESTRICT state, int64_t panel,
                                  const float* HWY_RESTRICT reads, int64_t read_row,
                                  const float* HWY_RESTRICT adds, int64_t add_row,
                                  const float* HWY_RESTRICT cols, int64_t col_row,
                                  const float* HWY_RESTRICT pairs, const float* factor,
                                  float* HWY_RESTRICT out, int64_t out_row,
                                  const float* HWY_RESTRICT scale = nullptr) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  FloatVec o[kStep][NV], c[kStep][NV];
  HEDGEROW_UNROLL
  for (int i = 0; i < kStep; i++) {
    HEDGEROW_UNROLL
    for (int j = 0; j < NV; j++) {
      o[i][j] = hn::Zero(d);
      c[i][j] = hn::LoadU(d, cols + i * col_row + j * lanes);
    }
  }
  for (int64_t r = 0; r < rows; r++) {
    float* HWY_RESTRICT row = state + r * panel;
    FloatVec s[NV];
    HEDGEROW_UNROLL
    for (int j = 0; j < NV; j++) s[j] = hn::LoadU(d, row + j * lanes);
    HEDGEROW_UNROLL
    for (int i = 0; i < kStep; i++) {
      const FloatVec a = hn::Set(d, reads[i * read_row + r]);
      HEDGEROW_UNROLL
      for (int j = 0; j < NV; j++) o[i][j] = hn::MulAdd(a, s[j], o[i][j]);
    }
    if (kRescale) {
      const FloatVec by = hn::Set(d, scale[r]);
      HEDGEROW_UNROLL
      for (int j = 0; j < NV; j++) s[j] = hn::Mul(s[j], by);
    }
    HEDGEROW_UNROLL
    for (int i = 0; i < kStep; i++) {
      const FloatVec a = hn::Set(d, adds[i * add_row + r]);
      HEDGEROW_UNROLL
      for (int j = 0; j < NV; j++) s[j] = hn::MulAdd(a, c[i][j], s[j]);
    }
    HEDGEROW_UNROLL
    for (int j = 0; j < NV; j++) hn::StoreU(s[j], d, row + j * lanes);
  }
  HEDGEROW_UNROLL
  for (int i = 0; i < kStep; i++) {
    HEDGEROW_UNROLL
    for (int k = 0; k < kStep; k++) {
      if (kReversed ? k < i : k > i) continue;
      const FloatVec w = hn::Set(d, pairs[i * kStep + k]);
      HEDGEROW_UNROLL
      for (int j = 0; j < NV; j++) o[i][j] = hn::MulAdd(w, c[k][j], o[i][j]);
    }
    const FloatVec f = hn::Set(d, factor ? factor[i] : 1.0f);
    HEDGEROW_UNROLL
    for (int j = 0; j < NV; j++) {
      hn::StoreU(hn::Mul(o[i][j], f), d, out + i * out_row + j * lanes);
    }
  }
}

// What a token multiplies the state by before it enters: a factor per row, or one per column.
enum class Scale { kRows, kColumns };

// One token on a panel: S = S * scale + add x col, then out = read . S, times factor.
template <int NV, Scale kScale>
HWY_INLINE void token_panel(int64_t rows, float* HWY_RESTRICT state, int64_t panel,
                            const float* HWY_RESTRICT scale, const float* HWY_RESTRICT read,
                            const float* HWY_RESTRICT add, const float* HWY_RESTRICT col,
                            float factor, float* HWY_RESTRICT out) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  FloatVec o[NV], c[NV], by[NV];
  HEDGEROW_UNROLL
  for (int j = 0; j < NV; j++) {
    o[j] = hn::Zero(d);
    c[j] = hn::LoadU(d, col + j * lanes);
    if (kScale == Scale::kColumns) by[j] = hn::LoadU(d, scale + j * lanes);
  }
  for (int64_t r = 0; r < rows; r++) {
    float* HWY_RESTRICT row = state + r * panel;
    const FloatVec a = hn::Set(d, add[r]), q = hn::Set(d, read[r]);
    HEDGEROW_UNROLL
    for (int j = 0; j < NV; j++) {
      const FloatVec factor_of = kScale == Scale::kRows ? hn::Set(d, scale[r]) : by[j];
      const FloatVec s = hn::MulAdd(a, c[j], hn::Mul(hn::LoadU(d, row + j * lanes), factor_of));
      hn::StoreU(s, d, row + j * lanes);
      o[j] = hn::MulAdd(q, s, o[j]);
    }
  }
  const FloatVec f = hn::Set(d, factor);
  HEDGEROW_UNROLL
  for (int j = 0; j < NV; j++) hn::StoreU(hn::Mul(o[j], f), d, out + j * lanes);
}

// S += adds^T cols over n tokens: adds [n][rows], cols [n][cols].
HWY_INLINE void add_tokens(const State& s, int64_t n, const float* adds, int64_t add_row,
                           const float* cols, int64_t col_row) {
  for (int64_t p = 0; p < s.panels(); p++) {
    gemm(s.rows, s.panel_cols(p) / float_lanes(), n, adds, 1, add_row, cols + p * s.panel, col_row,
         s.panel_data(p), s.panel, true);
  }
}

// out [n][cols] (row distance out_row) = reads [n][rows] S.
HWY_INLINE void read_tokens(const State& s, int64_t n, const float* reads, int64_t read_row,
                            float* out, int64_t out_row) {
  for (int64_t p = 0; p < s.panels(); p++) {
    gemm(n, s.panel_cols(p) / float_lanes(), s.rows, reads, read_row, 1, s.panel_data(p), s.panel,
         out + p * s.panel, out_row, false);
  }
}

// Multiplies row r of a panel of `vecs` vectors by scale[r].
HWY_INLINE void scale_panel_rows(int64_t rows, float* state, int64_t panel, int64_t vecs,
                                 const float* scale) {
  const FloatTag d;
  for (int64_t r = 0; r < rows; r++) {
    const FloatVec by = hn::Set(d, scale[r]);
    for (int64_t v = 0; v < vecs; v++) {
      float* at = state + r * panel + v * float_lanes();
      hn::StoreU(hn::Mul(hn::LoadU(d, at), by), d, at);
    }
  }
}

// Multiplies column c of a panel by scale[c].
HWY_INLINE void scale_panel_cols(int64_t rows, float* state, int64_t panel, int64_t vecs,
                                 const float* scale) {
  const FloatTag d;
  for (int64_t v = 0; v < vecs; v++) {
    const FloatVec by = hn::LoadU(d, scale + v * float_lanes());
    for (int64_t r = 0; r < rows; r++) {
      float* at = state + r * panel + v * float_lanes();
      hn::StoreU(hn::Mul(hn::LoadU(d, at), by), d, at);
    }
  }
}

HWY_INLINE void scale_rows(const State& s, const float* scale) {
  for (int64_t p = 0; p < s.panels(); p++) {
    scale_panel_rows(s.rows, s.panel_data(p), s.panel, s.panel_cols(p) / float_lanes(), scale);
  }
}
HWY_INLINE void scale_cols(const State& s, const float* scale) {
  for (int64_t p = 0; p < s.panels(); p++) {
    scale_panel_cols(s.rows, s.panel_data(p), s.panel, s.panel_cols(p) / float_lanes(),
                     scale + p * s.panel);
  }
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void lane_sums(const FloatVec (&x)[16], float* sums) {
  for (int i = 0; i < 16; i++) sums[i] = hn::GetLane(x[i]);
}
#else
// Adds up the 128-bit blocks of x.
template <class D, class V>
HWY_INLINE hn::Vec<hn::FixedTag<float, 4> > sum_blocks(D d, V x) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return x;
  } else {
    const hn::Half<D> half;
    return sum_blocks(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)));
  }
}

// sums[4 i + j] = the sum over the lanes of x[4 i + j].
HWY_INLINE void lane_sums(const FloatVec (&x)[16], float* sums) {
  const FloatTag d;
  const hn::Repartition<double, FloatTag> dd;
  const hn::FixedTag<float, 4> d4;
  HEDGEROW_UNROLL
  for (int i = 0; i < 4; i++) {
    // pairs of lanes of two vectors side by side, then of four
    const auto a = hn::Add(hn::InterleaveLower(d, x[4 * i], x[4 * i + 1]),
                           hn::InterleaveUpper(d, x[4 * i], x[4 * i + 1]));
    const auto b = hn::Add(hn::InterleaveLower(d, x[4 * i + 2], x[4 * i + 3]),
                           hn::InterleaveUpper(d, x[4 * i + 2], x[4 * i + 3]));
    const auto da = hn::BitCast(dd, a), db = hn::BitCast(dd, b);
    const auto lo = hn::BitCast(d, hn::InterleaveLower(dd, da, db));
    const auto hi = hn::BitCast(d, hn::InterleaveUpper(dd, da, db));
    hn::StoreU(sum_blocks(d, hn::Add(lo, hi)), d4, sums + 4 * i);
  }
}
#endif

// dots[4 i + j] = a_i . b_j over n numbers (a multiple of the vector length), rows at distances.
HWY_INLINE void pair_dots(int64_t n, const float* HWY_RESTRICT a, int64_t a_row,
                          const float* HWY_RESTRICT b, int64_t b_row, float* HWY_RESTRICT dots) {
  const FloatTag d;
  FloatVec c[16];
  HEDGEROW_UNROLL
  for (int i = 0; i < 16; i++) c[i] = hn::Zero(d);
  for (int64_t x = 0; x < n; x += float_lanes()) {
    FloatVec bv[4];
    HEDGEROW_UNROLL
    for (int j = 0; j < 4; j++) bv[j] = hn::LoadU(d, b + j * b_row + x);
    HEDGEROW_UNROLL
    for (int i = 0; i < 4; i++) {
      const FloatVec av = hn::LoadU(d, a + i * a_row + x);
      HEDGEROW_UNROLL
      for (int j = 0; j < 4; j++) c[4 * i + j] = hn::MulAdd(av, bv[j], c[4 * i + j]);
    }
  }
  lane_sums(c, dots);
}

// Multiplies z by scale (1 if null), adds n rows of f.
HWY_INLINE void add_rows(int64_t n, int64_t width, const float* HWY_RESTRICT f, int64_t f_row,
                         const float* scale, float* HWY_RESTRICT z) {
  const FloatTag d;
  for (int64_t i = 0; i < width; i += float_lanes()) {
    FloatVec s = hn::LoadU(d, z + i);
    if (scale != nullptr) s = hn::Mul(s, hn::LoadU(d, scale + i));
    for (int64_t r = 0; r < n; r++) s = hn::Add(s, hn::LoadU(d, f + r * f_row + i));
    hn::StoreU(s, d, z + i);
  }
}

// a . b over n numbers, a multiple of the vector length.
HWY_INLINE float vec_dot(int64_t n, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b) {
  const FloatTag d;
  FloatVec s = hn::Zero(d);
  for (int64_t i = 0; i < n; i += float_lanes()) {
    s = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), s);
  }
  return hn::GetLane(hn::SumOfLanes(d, s));
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels::linear
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_LINEAR_STATE_INL_H_
