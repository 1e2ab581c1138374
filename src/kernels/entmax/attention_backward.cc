// Backward of entmax attention, one range of queries of one key/value head at a time:
//   dW = dO V^T, dS of each row from it, dQ += dS K, dK += dS^T Q, dV += W^T dO
// on the supported pairs, with the scale folded in Q.
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/entmax/attention_backward.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/entmax/attention_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {

namespace {

// Where gradients of the rows of head (b, h) are summed: where they go, if that is float32 in whole
// vectors, else in scratch.
GradientRows gradient_rows(DType dtype, const MutTensor& to, int64_t b, int64_t h, int64_t rows,
                           int64_t width, float* partial, AlignedBuffer<float>& scratch) {
  const int64_t padded = round_up(width, float_lanes());
  GradientRows sum;
  if (padded == width && partial != nullptr) {
    sum = {partial, width};
  } else if (padded == width && dtype == DType::kFloat32) {
    sum = {row<float>(to, b, h, 0), to.row_stride};
  } else {
    sum = {reserve(scratch, rows * padded), padded};
  }
  for (int64_t r = 0; r < rows; r++) std::fill_n(sum.data + r * sum.stride, padded, 0.0f);
  return sum;
}

// Moves what was summed in scratch to where it goes.
void store_rows(DType dtype, const GradientRows& sum, const MutTensor& to, int64_t b, int64_t h,
                int64_t rows, int64_t width, float* partial, const AlignedBuffer<float>& scratch) {
  if (sum.data != scratch.data()) return;
  for (int64_t r = 0; r < rows; r++) {
    const float* from = sum.data + r * sum.stride;
    if (partial != nullptr) {
      std::copy(from, from + width, partial + r * width);
    } else {
      store_row(dtype, from, width, 1.0f, row_pointer(dtype, to, b, h, r));
    }
  }
}

}  // namespace

void entmax_queries(const EntmaxAttentionParams& p, const EntmaxGradients& g,
                    const QueryRange& range, EntmaxBackwardScratch& scratch) {
  EntmaxBackward head(p, g, scratch);
  const GradientRows dk =
      gradient_rows(p.dtype, g.dk, range.b, range.g, p.keys, p.width, range.partial_dk, scratch.dk);
  const GradientRows dv = gradient_rows(p.dtype, g.dv, range.b, range.g, p.keys, p.value_width,
                                        range.partial_dv, scratch.dv);
  const int64_t width = head.key_width();
  float* dq = reserve(scratch.dq, kRowTile * width);
  const int64_t seen = range.end > range.begin ? causal_keys(p, range.end - 1) : 0;
  head.set_head(range.b, range.g, seen);
  for (int64_t member = 0; member < group_size(p); member++) {
    const int64_t h = range.g * group_size(p) + member;
    range.dalpha[member] = 0;
    for (int64_t t0 = range.begin; t0 < range.end; t0 += kRowTile) {
      const int64_t rows = std::min(kRowTile, range.end - t0);
      std::fill(dq, dq + rows * width, 0.0f);
      range.dalpha[member] += head.tile(
          h, t0, rows, [&](int64_t r, int64_t n) { head.accumulate_list(r, n, dq); },
          [&] { head.accumulate_dense(dq, dk, dv); });
      head.end_tile(dk, dv, t0 + rows == range.end);
      for (int64_t r = 0; r < rows; r++) {
        store_row(p.dtype, dq + r * width, p.width, static_cast<float>(p.scale),
                  row_pointer(p.dtype, g.dq, range.b, h, t0 + r));
      }
    }
  }
  store_rows(p.dtype, dk, g.dk, range.b, range.g, p.keys, p.width, range.partial_dk, scratch.dk);
  store_rows(p.dtype, dv, g.dv, range.b, range.g, p.keys, p.value_width, range.partial_dv,
             scratch.dv);
}

void sum_parts(DType dtype, const MutTensor& to, int64_t b, int64_t g, int64_t s0, int64_t rows,
               int64_t width, const float* parts, int64_t num_parts, int64_t part_stride) {
  std::vector<float> sum(width);
  for (int64_t r = 0; r < rows; r++) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (int64_t i = 0; i < num_parts; i++) {
      const float* part = parts + i * part_stride + r * width;
      for (int64_t d = 0; d < width; d++) sum[d] += part[d];
    }
    store_row(dtype, sum.data(), width, 1.0f, row_pointer(dtype, to, b, g, s0 + r));
  }
}

namespace {

// The mask's gradient for masks of type T: row t of the slab, [S] elements key_stride apart.
template <typename T>
void mask_slab(const EntmaxAttentionParams& p, const EntmaxGradients& g, const MaskSlab& slab,
               EntmaxBackward& head) {
  const MaskGradient& m = g.dmask;
  T* to = static_cast<T*>(m.data) + slab.b * m.batch_stride + slab.h * m.head_stride;
  for (int64_t t = slab.begin; t < slab.end; t++) {
    for (int64_t s = 0; s < p.keys; s++) to[t * m.query_stride + s * m.key_stride] = 0;
  }
  const int64_t b_end = m.batch_stride ? slab.b + 1 : p.batch;
  const int64_t h_end = m.head_stride ? slab.h + 1 : p.heads;
  for (int64_t b = slab.b; b < b_end; b++) {
    for (int64_t h = slab.h; h < h_end; h++) {
      head.set_head(b, h / group_size(p), causal_keys(p, slab.end - 1));
      for (int64_t t0 = slab.begin; t0 < slab.end; t0 += kRowTile) {
        const int64_t rows = std::min(kRowTile, slab.end - t0);
        head.tile(
            h, t0, rows,
            [&](int64_t r, int64_t n) {
              T* row = to + (t0 + r) * m.query_stride;
              for (int64_t i = 0; i < n; i++) {
                row[head.keys()[i] * m.key_stride] += head.dscores()[i];
              }
            },
            [&] {
              for (int64_t r = 0; r < rows; r++) {
                T* row = to + (t0 + r) * m.query_stride;
                const float* ds = head.dscores(r);
                for (int64_t s = 0; s < head.visible(r); s++) row[s * m.key_stride] += ds[s];
              }
            });
      }
    }
  }
}

}  // namespace

void entmax_mask(const EntmaxAttentionParams& p, const EntmaxGradients& g, const MaskSlab& slab,
                 EntmaxBackwardScratch& scratch) {
  if (slab.end == slab.begin) return;
  EntmaxBackward head(p, g, scratch);
  if (p.mask.kind == MaskKind::kFloat64) {
    mask_slab<double>(p, g, slab, head);
  } else {
    mask_slab<float>(p, g, slab, head);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hedgerow::kernels {
HWY_EXPORT(entmax_queries);
HWY_EXPORT(entmax_mask);
HWY_EXPORT(sum_parts);

void entmax_backward_queries(const EntmaxAttentionParams& p, const EntmaxGradients& g,
                             const QueryRange& range, EntmaxBackwardScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(entmax_queries)(p, g, range, scratch);
}

void entmax_backward_mask(const EntmaxAttentionParams& p, const EntmaxGradients& g,
                          const MaskSlab& slab, EntmaxBackwardScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(entmax_mask)(p, g, slab, scratch);
}

void entmax_sum_parts(DType dtype, const MutTensor& to, int64_t b, int64_t g, int64_t s0,
                      int64_t rows, int64_t width, const float* parts, int64_t num_parts,
                      int64_t part_stride) {
  HWY_DYNAMIC_DISPATCH(sum_parts)(dtype, to, b, g, s0, rows, width, parts, num_parts, part_stride);
}

}  // namespace hedgerow::kernels
#endif  // HWY_ONCE
