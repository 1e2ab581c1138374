// Products of the backward that are sums over pairs: gradients of projections. Include after
// hwy/foreach_target.h.
#include <cstdint>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_TALKING_HEADS_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_TALKING_HEADS_GRADIENTS_INL_H_
#undef HEDGEROW_KERNELS_TALKING_HEADS_GRADIENTS_INL_H_
#else
#define HEDGEROW_KERNELS_TALKING_HEADS_GRADIENTS_INL_H_
#endif

#include "kernels/talking_heads/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {

// Register tile of gram(): accumulators, a column of B and one of A.
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
inline constexpr int kGramA = 4, kGramB = 6;
#elif HWY_ARCH_ARM_A64
inline constexpr int kGramA = 4, kGramB = 4;
#else
inline constexpr int kGramA = 2, kGramB = 4;
#endif

// Positions of a panel: rows of kHeadsPanel floats, `vecs` vectors of each.
struct Positions {
  int64_t rows, vecs;
};

// g[i * g_row + j * g_step ..][lanes] += sum over positions of a_i b_j, heads `stride` apart.
template <int MA, int MB>
HWY_NOINLINE HWY_MAYBE_UNUSED static void gram_tile(const Positions& at, int64_t stride,
                                                    const float* HWY_RESTRICT a,
                                                    const float* HWY_RESTRICT b,
                                                    float* HWY_RESTRICT g, int64_t g_row,
                                                    int64_t g_step) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  FloatVec c[MA][MB];
  HEDGEROW_UNROLL
  for (int i = 0; i < MA; i++) {
    HEDGEROW_UNROLL
    for (int j = 0; j < MB; j++) c[i][j] = hn::LoadU(d, g + i * g_row + j * g_step);
  }
  for (int64_t r = 0; r < at.rows; r++) {
    for (int64_t x = r * kHeadsPanel; x < r * kHeadsPanel + at.vecs * lanes; x += lanes) {
      FloatVec bv[MB];
      HEDGEROW_UNROLL
      for (int j = 0; j < MB; j++) bv[j] = hn::LoadU(d, b + j * stride + x);
      HEDGEROW_UNROLL
      for (int i = 0; i < MA; i++) {
        const FloatVec av = hn::LoadU(d, a + i * stride + x);
        HEDGEROW_UNROLL
        for (int j = 0; j < MB; j++) c[i][j] = hn::MulAdd(av, bv[j], c[i][j]);
      }
    }
  }
  HEDGEROW_UNROLL
  for (int i = 0; i < MA; i++) {
    HEDGEROW_UNROLL
    for (int j = 0; j < MB; j++) hn::StoreU(c[i][j], d, g + i * g_row + j * g_step);
  }
}

// body(integral_constant<int, N>, first) over [0, n): N = Most, then what is left.
template <int Most, class Body>
HWY_INLINE void for_blocks(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + Most <= n; i += Most) body(std::integral_constant<int, Most>(), i);
  if constexpr (Most > 4) {
    if (n - i >= 4) {
      body(std::integral_constant<int, 4>(), i);
      i += 4;
    }
  }
  if constexpr (Most > 2) {
    if (n - i >= 2) {
      body(std::integral_constant<int, 2>(), i);
      i += 2;
    }
  }
  if (n - i >= 1) body(std::integral_constant<int, 1>(), i);
}

// g [in][out][step] += lane sums over the positions of a [in] times b [out].
HWY_MAYBE_UNUSED static void gram(const Positions& at, int64_t stride, int64_t in, const float* a,
                                  int64_t out, const float* b, float* g, int64_t step) {
  for_blocks<kGramB>(out, [&](auto nb, int64_t j) HEDGEROW_FUNCTOR {
    for_blocks<kGramA>(in, [&](auto na, int64_t i) HEDGEROW_FUNCTOR {
      gram_tile<decltype(na)::value, decltype(nb)::value>(
          at, stride, a + i * stride, b + j * stride, g + (i * out + j) * step, out * step, step);
    });
  });
}

// Gradients of one projection and its dynamic terms over a tile of queries: lane sums over pairs,
// for the tile as a whole, or for each row where x terms are wanted.
class ProjectionGradient {
 public:
  // x: the tile's rows of the x terms' gradient, m: of this task's [panel][in * out][kHeadsPanel];
  // nullptr where not wanted. total [in * out] sums up the projection's own; nullptr: not wanted.
  ProjectionGradient(int64_t in, int64_t out, int64_t rows, float* x, float* m, double* total,
                     AlignedBuffer<float>& lanes)
      : in_(in), out_(out), rows_(rows), x_(x), m_(m), total_(total), lanes_(float_lanes()) {
    if (x == nullptr && total == nullptr) return;
    sums_ = reserve(lanes, size() * slots() * lanes_);
    std::fill(sums_, sums_ + size() * slots() * lanes_, 0.0f);
  }

  void add(const Panel& panel, int64_t stride, const float* a, const float* b) {
    const Positions all{rows_, panel.vecs};
    if (x_ != nullptr) {
      for (int64_t r = 0; r < rows_; r++) {
        gram({1, panel.vecs}, stride, in_, a + r * kHeadsPanel, out_, b + r * kHeadsPanel,
             sums_ + r * size() * lanes_, lanes_);
      }
    } else if (total_ != nullptr) {
      gram(all, stride, in_, a, out_, b, sums_, lanes_);
    }
    if (m_ == nullptr) return;
    float* m = m_ + panel.index * size() * kHeadsPanel;
    for (int64_t j = 0; j < panel.vecs * lanes_; j += lanes_) {
      gram({rows_, 1}, stride, in_, a + j, out_, b + j, m + j, kHeadsPanel);
    }
  }

  void finish() {
    if (sums_ == nullptr) return;
    for (int64_t i = 0; i < size() * slots(); i++) {
      const float sum = reduce_sum(hn::LoadU(FloatTag(), sums_ + i * lanes_));
      if (x_ != nullptr) x_[i] = sum;
      if (total_ != nullptr) total_[i % size()] += sum;
    }
  }

 private:
  int64_t size() const { return in_ * out_; }
  int64_t slots() const { return x_ != nullptr ? rows_ : 1; }

  int64_t in_, out_, rows_;
  float *x_, *m_;
  double* total_;
  int64_t lanes_;
  float* sums_ = nullptr;
};

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_TALKING_HEADS_GRADIENTS_INL_H_
