// Shared by the files of this folder: rows in float32 as the vector code takes them.
#pragma once

#include "base/aligned_buffer.h"
#include "hedgerow/kernels/selected_scores.h"

namespace hedgerow::kernels {

// The P positions of query (h, t).
inline const int64_t* positions_of(const SelectedScoresParams& p, int64_t h, int64_t t) {
  return p.positions + ((p.by_head ? h : 0) * p.queries + t) * p.selected;
}

// Rows of the width in whole vectors, `stride` floats apart, 0 behind the width.
struct SelectedRows {
  int64_t stride = 0;
  AlignedBuffer<float> keys;  // [B,Hkv,S][stride]
};
SelectedRows pack_selected(const SelectedScoresParams& p);

// What one worker keeps between tasks.
struct SelectedScratch {
  AlignedBuffer<float> q, dq;  // a row
  AlignedBuffer<float> dk;     // of a key/value head
};

// Scores of head h, queries [t0, t1).
void selected_forward_rows(const SelectedScoresParams& p, const SelectedRows& rows, int64_t b,
                           int64_t h, int64_t t0, int64_t t1, float* scores,
                           SelectedScratch& scratch);

// dk of the key/value head, and dq of all heads that read it.
void selected_backward_group(const SelectedScoresParams& p, const SelectedRows& rows, int64_t b,
                             int64_t g, const float* grad, const MutTensor& dq, const MutTensor& dk,
                             SelectedScratch& scratch);

}  // namespace hedgerow::kernels
