// Scores of a few keys of its own for each query, on raw memory, forward and backward. Keys are
// read where they lie; [B,H,T,P,D] of them is never formed.
//
//   score[b,h,t,p] = q[b,h,t,:] . k[b,g,positions[h,t,p],:],   g = h / (H / Hkv)
//
// q [B,H,T,D], k [B,Hkv,S,D], positions [1 or H,T,P], scores [B,H,T,P]; any sizes, 0 included;
// legend in types.h. A position may stand twice. Not scaled, no mask.
//
// float32 and bfloat16 run the vector kernels (float32 accumulation and scores); float64 runs the
// reference. Results do not depend on the number of threads, bit for bit. Scratch: k once, and its
// gradient, in float32. 2 T P D FLOPs per head forward, twice that backward.
#pragma once

#include <cstdint>

#include "hedgerow/kernels/types.h"

namespace hedgerow::kernels {

struct SelectedScoresParams {
  DType dtype = DType::kFloat32;  // of q, k and their gradients
  int64_t batch = 0;              // B
  int64_t heads = 0;              // H
  int64_t kv_heads = 0;           // Hkv, divides H
  int64_t queries = 0;            // T
  int64_t keys = 0;               // S
  int64_t width = 0;              // D
  int64_t selected = 0;           // P
  ConstTensor q, k;
  const int64_t* positions = nullptr;  // contiguous, each in [0, S)
  bool by_head = false;                // positions are [H,T,P], not [1,T,P]
};

// Writes scores: contiguous, float64 for float64 input, else float32.
void selected_scores_forward(const SelectedScoresParams& params, void* scores);

// Writes dq and dk; grad is contiguous, of the scores' type. A key that no query selected gets 0.
void selected_scores_backward(const SelectedScoresParams& params, const void* grad,
                              const MutTensor& dq, const MutTensor& dk);

// The definition: plain loops in double, every dtype, one thread.
void selected_scores_forward_reference(const SelectedScoresParams& params, void* scores);
void selected_scores_backward_reference(const SelectedScoresParams& params, const void* grad,
                                        const MutTensor& dq, const MutTensor& dk);

}  // namespace hedgerow::kernels
