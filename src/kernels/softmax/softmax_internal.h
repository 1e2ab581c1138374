// Shared by the softmax kernels and their reference: what a mask means, how work is cut.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/aligned_buffer.h"
#include "hedgerow/kernels/softmax.h"

namespace hedgerow::kernels {

// Query rows per tile and keys per tile of scores: 64 x 64 floats are half of a small L1.
inline constexpr int64_t kQueryTile = 64;
inline constexpr int64_t kKeyTile = 64;

// Mask value of (b, h, t, s) as an addend: 0 = keep, -inf = excluded.
inline double mask_value(const Mask& mask, int64_t b, int64_t h, int64_t t, int64_t s) {
  if (mask.kind == MaskKind::kNone) return 0.0;
  const int64_t i =
      b * mask.batch_stride + h * mask.head_stride + t * mask.query_stride + s * mask.key_stride;
  if (mask.kind == MaskKind::kBool) {
    return static_cast<const uint8_t*>(mask.data)[i] ? 0.0
                                                     : -std::numeric_limits<double>::infinity();
  }
  if (mask.kind == MaskKind::kFloat32) return static_cast<const float*>(mask.data)[i];
  return static_cast<const double*>(mask.data)[i];
}

// Keys [0, n) that is_causal leaves to query t; all of them without it.
inline int64_t causal_keys(const SoftmaxParams& p, int64_t t) {
  if (!p.is_causal) return p.keys;
  return std::clamp<int64_t>(t + 1 + p.keys - p.queries, 0, p.keys);
}

inline int64_t group_size(const SoftmaxParams& p) {
  return p.kv_heads == 0 ? 1 : p.heads / p.kv_heads;
}

inline int64_t divide_up(int64_t n, int64_t d) { return (n + d - 1) / d; }

// What one worker keeps between forward tasks. Keys and values of (b, g) are packed once.
struct ForwardScratch {
  AlignedBuffer<float> keys;    // K^T panels [panel][D][panel width]
  AlignedBuffer<float> values;  // [S][Dv padded], rows that are not finite zeroed
  AlignedBuffer<float> rows;    // staging of rows to transpose
  AlignedBuffer<float> q, scores, out, bias, sums, block_sums;
  std::vector<int64_t> bad_values;  // keys whose value row is not finite
  int64_t packed_batch = -1, packed_head = -1, packed_keys = 0;
};

// One tile of queries of one head.
struct ForwardTile {
  int64_t b, h, t0, rows;
};

// Writes out and lse of the tile.
void softmax_forward_tile(const SoftmaxParams& p, const MutTensor& out, float* lse,
                          const ForwardTile& tile, ForwardScratch& scratch);

// What one worker keeps for the backward; see softmax_backward.cc for the shapes.
struct BackwardScratch {
  AlignedBuffer<float> key_panels, value_panels, keys, staging;
  AlignedBuffer<float> q, grad_out, row_out, shift, log2_sum, delta;
  AlignedBuffer<float> weights, dscores;
  AlignedBuffer<float> dq, dk, dv;
};

// Keys [begin, end) of key/value head g of batch b: writes dk and dv there. dq of the group's heads
// is written to gradients.dq when partial_dq is nullptr, else this range's part of it, unscaled,
// to partial_dq [group][T][D].
struct KeyRange {
  int64_t b, g, begin, end;
  float* partial_dq;
};
void softmax_backward_keys(const SoftmaxParams& p, const SoftmaxGradients& gradients,
                           const KeyRange& range, BackwardScratch& scratch);

// dq [b, h, t0 .. t0 + rows) = scale * the sum of the parts, which lie part_stride floats apart.
void softmax_sum_dq(const SoftmaxParams& p, const MutTensor& dq, int64_t b, int64_t h, int64_t t0,
                    int64_t rows, const float* parts, int64_t num_parts, int64_t part_stride);

// Queries [begin, end) of the mask slab (b, h): writes the mask's gradient there, summed over all
// batches and heads that read the slab.
struct MaskSlab {
  int64_t b, h, begin, end;
};
void softmax_backward_mask(const SoftmaxParams& p, const SoftmaxGradients& gradients,
                           const MaskSlab& slab, BackwardScratch& scratch);

}  // namespace hedgerow::kernels
