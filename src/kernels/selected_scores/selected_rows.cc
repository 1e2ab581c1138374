// Products of queries with keys where they lie, and their gradients.
#include <algorithm>

#include "base/parallel.h"
#include "kernels/selected_scores/selected_scores_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/selected_scores/selected_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/common/elements.h"
#include "kernels/common/gemm-inl.h"
#include "kernels/common/math-inl.h"
#include "kernels/common/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {
namespace {

// out[p] = q . keys[positions[p]] for N of them at once: their sums are independent.
template <int N>
void dots(const float* HWY_RESTRICT q, const float* HWY_RESTRICT keys, int64_t stride,
          const int64_t* HWY_RESTRICT positions, float* HWY_RESTRICT out) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  const float* k[N];
  FloatVec sum[N];
  HEDGEROW_UNROLL
  for (int p = 0; p < N; p++) {
    k[p] = keys + positions[p] * stride;
    sum[p] = hn::Zero(d);
  }
  for (int64_t i = 0; i < stride; i += lanes) {
    const FloatVec x = hn::LoadU(d, q + i);
    HEDGEROW_UNROLL
    for (int p = 0; p < N; p++) sum[p] = hn::MulAdd(x, hn::LoadU(d, k[p] + i), sum[p]);
  }
  HEDGEROW_UNROLL
  for (int p = 0; p < N; p++) out[p] = reduce_sum(sum[p]);
}

}  // namespace

void pack_rows(const SelectedScoresParams& p, SelectedRows& rows) {
  const int64_t lanes = float_lanes();
  rows.stride = (p.width + lanes - 1) / lanes * lanes;
  rows.keys.resize(p.batch * p.kv_heads * p.keys * rows.stride);
  parallel_for(p.batch * p.kv_heads, [&](int64_t bg, int64_t) {
    for (int64_t s = 0; s < p.keys; s++) {
      load_row(p.dtype, row_pointer(p.dtype, p.k, bg / p.kv_heads, bg % p.kv_heads, s), p.width,
               rows.stride, 1.0f, rows.keys.data() + (bg * p.keys + s) * rows.stride);
    }
  });
}

void forward_rows(const SelectedScoresParams& p, const SelectedRows& rows, int64_t b, int64_t h,
                  int64_t t0, int64_t t1, float* scores, SelectedScratch& scratch) {
  constexpr int kAtOnce = 4;
  const int64_t g = h / (p.heads / p.kv_heads);
  const float* keys = rows.keys.data() + (b * p.kv_heads + g) * p.keys * rows.stride;
  float* q = reserve(scratch.q, rows.stride);
  for (int64_t t = t0; t < t1; t++) {
    load_row(p.dtype, row_pointer(p.dtype, p.q, b, h, t), p.width, rows.stride, 1.0f, q);
    const int64_t* positions = positions_of(p, h, t);
    float* out = scores + ((b * p.heads + h) * p.queries + t) * p.selected;
    int64_t i = 0;
    for (; i + kAtOnce <= p.selected; i += kAtOnce)
      dots<kAtOnce>(q, keys, rows.stride, positions + i, out + i);
    for (; i < p.selected; i++) dots<1>(q, keys, rows.stride, positions + i, out + i);
  }
}

void backward_group(const SelectedScoresParams& p, const SelectedRows& rows, int64_t b, int64_t g,
                    const float* grad, const MutTensor& dq_out, const MutTensor& dk_out,
                    SelectedScratch& scratch) {
  const FloatTag d;
  const int64_t lanes = float_lanes(), stride = rows.stride, group = p.heads / p.kv_heads;
  const float* HWY_RESTRICT keys = rows.keys.data() + (b * p.kv_heads + g) * p.keys * stride;
  float* HWY_RESTRICT q = reserve(scratch.q, stride);
  float* HWY_RESTRICT dq = reserve(scratch.dq, stride);
  float* HWY_RESTRICT dk = reserve(scratch.dk, p.keys * stride);
  std::fill(dk, dk + p.keys * stride, 0.0f);
  for (int64_t h = g * group; h < (g + 1) * group; h++) {
    for (int64_t t = 0; t < p.queries; t++) {
      load_row(p.dtype, row_pointer(p.dtype, p.q, b, h, t), p.width, stride, 1.0f, q);
      const int64_t* positions = positions_of(p, h, t);
      const float* from = grad + ((b * p.heads + h) * p.queries + t) * p.selected;
      for (int64_t i = 0; i < stride; i += lanes) {
        const FloatVec x = hn::LoadU(d, q + i);
        FloatVec sum = hn::Zero(d);
        for (int64_t j = 0; j < p.selected; j++) {
          const FloatVec w = hn::Set(d, from[j]);
          const int64_t at = positions[j] * stride + i;
          sum = hn::MulAdd(w, hn::LoadU(d, keys + at), sum);
          hn::StoreU(hn::MulAdd(w, x, hn::LoadU(d, dk + at)), d, dk + at);
        }
        hn::StoreU(sum, d, dq + i);
      }
      store_row(p.dtype, dq, p.width, 1.0f, row_pointer(p.dtype, dq_out, b, h, t));
    }
  }
  for (int64_t s = 0; s < p.keys; s++)
    store_row(p.dtype, dk + s * stride, p.width, 1.0f, row_pointer(p.dtype, dk_out, b, g, s));
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hedgerow::kernels {
HWY_EXPORT(pack_rows);
HWY_EXPORT(forward_rows);
HWY_EXPORT(backward_group);

SelectedRows pack_selected(const SelectedScoresParams& p) {
  SelectedRows rows;
  HWY_DYNAMIC_DISPATCH(pack_rows)(p, rows);
  return rows;
}

void selected_forward_rows(const SelectedScoresParams& p, const SelectedRows& rows, int64_t b,
                           int64_t h, int64_t t0, int64_t t1, float* scores,
                           SelectedScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(forward_rows)(p, rows, b, h, t0, t1, scores, scratch);
}

void selected_backward_group(const SelectedScoresParams& p, const SelectedRows& rows, int64_t b,
                             int64_t g, const float* grad, const MutTensor& dq, const MutTensor& dk,
                             SelectedScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(backward_group)(p, rows, b, g, grad, dq, dk, scratch);
}

}  // namespace hedgerow::kernels
#endif  // HWY_ONCE
