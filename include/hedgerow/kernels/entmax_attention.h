// alpha-entmax attention on raw memory, forward and backward.
//
//   score[b,h,t,s] = scale * q[b,h,t,:] . k[b,g,s,:] + mask[b,h,t,s],   g = h / (H / Hkv)
//   w = entmax_alpha[h] over the visible s of score;  out[b,h,t,:] = sum_s drop(w)[s] v[b,g,s,:]
//   entmax_alpha(z)_s = [(alpha - 1) z_s - tau]_+^(1 / (alpha - 1)), entries summing to 1;
//   alpha = 1: softmax
//
// Shapes, masks, is_causal (bottom-right), dropout and queries that see nothing: as softmax.h says.
// alpha is finite and at least 1 (checked by callers), one per head or one for all.
//
// A row needs only the keys whose weight is not 0, its support. What a backward keeps of it has
// sizes that follow from shapes: three floats, and up to C = entmax_support_capacity(S) entries of
// key and weight; rows with a larger support compute their weights again from the floats.
//
// float32 and bfloat16 run the fused kernels: float32 accumulation; for alpha above 2, where
// weights hang on the last bits of scores, rows are solved in double. float64 runs the reference.
// Results do not depend on the number of threads, bit for bit. Scratch is O(T + S) per thread.
// Forward 2 T S D FLOPs per head and 2 Dv per supported pair; backward 6 D + 4 Dv per supported
// pair and, where rows are computed again, 2 S D per row. Large supports cost what softmax costs,
// and in the backward two products more.
// Source: Correia, Niculae and Martins, "Adaptively Sparse Transformers" (arXiv 1909.00015).
#pragma once

#include <cstdint>

#include "hedgerow/kernels/softmax.h"
#include "hedgerow/kernels/types.h"

namespace hedgerow::kernels {

// What softmax attention takes, and alpha.
struct EntmaxAttentionParams : SoftmaxParams {
  const double* alpha = nullptr;  // of head h at alpha[h * alpha_stride]
  int64_t alpha_stride = 0;       // 1: [H]; 0: one value for all heads
};

// Entries of a row's support that are kept: all S of them for short rows, else as many as make,
// with the statistics, at most 600 bytes per query row and head.
int64_t entmax_support_capacity(int64_t keys);
// Bytes of a kept key index: 2 (uint16_t) for up to 65536 keys, 4 (uint32_t) beyond.
int64_t entmax_support_index_bytes(int64_t keys);

inline constexpr int64_t kEntmaxRowStats = 3;

// What a forward keeps for a backward; all contiguous, every element written (0 where unused).
struct EntmaxSupport {
  // [B,H,T,3]: a score of the row, the threshold seen from that score, the size of the support.
  //   alpha <= 2: the largest score m, and lambda - m >= 0, where
  //     w = exp(log1p((alpha - 1) (z - lambda)) / (alpha - 1)), exp(z - lambda) at alpha = 1;
  //     lambda is the log-sum-exp at alpha = 1 and (tau + 1) / (alpha - 1) above
  //   alpha > 2: the smallest supported score z0 and the logarithm of its weight w0, where
  //     w = ((alpha - 1) (z - z0) + w0^(alpha - 1))^(1 / (alpha - 1))
  // A query that sees nothing has size 0, score 0 and threshold 0.
  float* stats = nullptr;
  // [B,H,T,C]: keys of the support, ascending, and their weights (before dropout); valid where the
  // size is at most C, else all 0.
  void* index = nullptr;
  float* weight = nullptr;
};

struct EntmaxGradients {
  EntmaxSupport support;  // of the forward
  ConstTensor grad_out;   // [B,H,T,Dv]
  MutTensor dq, dk, dv;   // shapes of q, k, v; written whole
  MaskGradient dmask;
  double* dalpha = nullptr;  // [H], summed over batches and queries; nullptr: not wanted
};

// Writes out and, unless support is nullptr, all of *support.
void entmax_attention_forward(const EntmaxAttentionParams& params, const MutTensor& out,
                              const EntmaxSupport* support);

// Writes dq, dk, dv and, when asked, dmask and dalpha. With s = w^(2 - alpha) on the support, g the
// gradient for w and <s, g> = sum s g / sum s: dscore = s (g - <s, g>). Where a score lies on the
// threshold the gradient is that of the support without it.
void entmax_attention_backward(const EntmaxAttentionParams& params,
                               const EntmaxGradients& gradients);

// The definition: plain loops in double, every dtype, one thread. The backward computes rows again:
// gradients.support is not read.
void entmax_attention_forward_reference(const EntmaxAttentionParams& params, const MutTensor& out,
                                        const EntmaxSupport* support);
void entmax_attention_backward_reference(const EntmaxAttentionParams& params,
                                         const EntmaxGradients& gradients);

}  // namespace hedgerow::kernels
