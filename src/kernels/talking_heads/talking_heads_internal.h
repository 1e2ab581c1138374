// Shared by the talking-heads kernels and their reference: what is packed, how work is cut, what a
// worker keeps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "hedgerow/kernels/talking_heads.h"
#include "kernels/entmax/rows_internal.h"
#include "kernels/softmax/softmax_internal.h"

namespace hedgerow::kernels {

inline DType projection_dtype(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// The H normalised heads as softmax attention sees them: sizes, mask, causality.
inline SoftmaxParams mask_view(const TalkingHeadsParams& p) {
  SoftmaxParams rows;
  rows.batch = p.batch;
  rows.heads = rows.kv_heads = p.heads;
  rows.queries = p.queries;
  rows.keys = p.keys;
  rows.mask = p.mask;
  rows.is_causal = p.is_causal;
  return rows;
}

// Keys per panel: tiles of scores lie [panel][head][row][kHeadsPanel].
inline constexpr int64_t kHeadsPanel = 64;

inline int64_t num_panels(const TalkingHeadsParams& p) { return divide_up(p.keys, kHeadsPanel); }

// Keys and values of all heads in the order in which a tile of queries reads them: panel by panel,
// in each head by head; missing keys of the last panel are 0.
struct PackedHeads {
  int64_t key_stride = 0, value_stride = 0;  // D and Dv in whole vectors
  // K^T [B][panel][Hkk][kHeadsPanel / pw][D][pw], pw = panel_width()
  AlignedBuffer<float> keys;
  // Terms [B][panel][in * out][kHeadsPanel], 0 where not finite but for the forward's m_logits.
  AlignedBuffer<float> m_logits, m_weights;
  // Of the forward: [B][panel][Hvv][kHeadsPanel][value_stride], rows that are not finite are 0.
  AlignedBuffer<float> values;
  // Of the backward: rows as of values, and V^T as keys.
  AlignedBuffer<float> key_rows, value_panels;
  // Keys of each [B * panel] that are not finite there.
  struct BadValue {
    int64_t head, key;
  };
  std::vector<std::vector<BadValue>> bad_values;
  std::vector<std::vector<int64_t>> bad_keys, bad_weights;
};
PackedHeads pack_heads(const TalkingHeadsParams& p, bool backward);

// Rows of queries whose scores of all heads a worker holds at once.
struct HeadsTile {
  int64_t b, t0, rows;
};

// What one worker keeps between tiles.
struct HeadsScratch {
  AlignedBuffer<float> q, grad_out;                    // [head][row][width in whole vectors]
  AlignedBuffer<float> scores, weights;                // J, and L, then W
  AlignedBuffer<float> mixed, dmixed;                  // of a panel
  AlignedBuffer<float> dweights;                       // dW, then dL
  AlignedBuffer<float> logits_matrix, weights_matrix;  // of each row
  AlignedBuffer<float> reference, sums, factors, delta, bias, staging;
  AlignedBuffer<float> dq, out;
  AlignedBuffer<float> row_in, row_in2, row_out;  // one row of a head, all keys
  AlignedBuffer<float> gram;
  entmax::RowScratch row;
};

// Writes out of the tile.
void talking_heads_forward_tile(const TalkingHeadsParams& p, const PackedHeads& packed,
                                int64_t tile_rows, const HeadsTile& tile, const MutTensor& out,
                                HeadsScratch& scratch);

// What a backward task sums up: gradients of keys and values, of the projections and of a mask
// that its queries share. Panels lie as in PackedHeads.
struct HeadsSums {
  // [panel][head][kHeadsPanel][stride]; the first `panels` hold sums, the others nothing yet
  AlignedBuffer<float> dk, dv;
  int64_t panels = 0;
  AlignedBuffer<float> dm_logits, dm_weights;  // [panel][in * out][kHeadsPanel]
  std::vector<double> dlogits_proj, dweights_proj, dalpha;
  MaskGradient mask;  // where this task adds: the gradient itself, or mask_rows
  DType mask_dtype = DType::kFloat32;
  std::vector<double> mask_rows;
};
void talking_heads_backward_tile(const TalkingHeadsParams& p, const TalkingHeadsGradients& g,
                                 const PackedHeads& packed, int64_t tile_rows,
                                 const HeadsTile& tile, HeadsSums& sums, HeadsScratch& scratch);

}  // namespace hedgerow::kernels
