// Softmax attention on raw memory, forward and backward.
//
//   score[b,h,t,s] = scale * q[b,h,t,:] . k[b,g,s,:] + mask[b,h,t,s],   g = h / (H / Hkv)
//   w = softmax over the visible s of score;  out[b,h,t,:] = sum_s drop(w)[s] v[b,g,s,:]
//
// q [B,H,T,D], k [B,Hkv,S,D], v [B,Hkv,S,Dv], out [B,H,T,Dv]; any sizes, 0 included; legend in
// types.h. A key is visible unless the boolean mask is false there, the floating mask is -inf
// there, or is_causal and s > t + (S - T). What is not visible is never read into a result: NaN
// there changes nothing. A query that sees nothing gives zeros, and zero gradients. Finite mask
// values of any size are values.
//
// Dropout keeps w[s] when dropout_bits(dropout_row_key(seed, b, h, t), s) >= dropout_threshold(p)
// and scales it by 1 / (1 - p) (src/base/counter_rng.h).
//
// float32 and bfloat16 run the fused kernels (float32 accumulation); float64 runs the reference.
// Results do not depend on the number of threads, bit for bit. Scratch is O(T + S) per thread.
// 2 T S (D + Dv) FLOPs per head forward, 2 T S (3 D + 2 Dv) backward, half when causal.
// Source: Dao et al., "FlashAttention" (arXiv 2205.14135), with a saved log-sum-exp.
#pragma once

#include <cstdint>

#include "hedgerow/kernels/types.h"

namespace hedgerow::kernels {

struct SoftmaxParams {
  DType dtype = DType::kFloat32;  // of q, k, v, out and all gradients
  int64_t batch = 0;              // B
  int64_t heads = 0;              // H
  int64_t kv_heads = 0;           // Hkv, divides H
  int64_t queries = 0;            // T
  int64_t keys = 0;               // S
  int64_t width = 0;              // D
  int64_t value_width = 0;        // Dv
  ConstTensor q, k, v;
  Mask mask;
  bool is_causal = false;
  double scale = 1.0;
  double dropout_p = 0.0;  // in [0, 1)
  uint64_t dropout_seed = 0;
};

// Gradient of a floating mask, of the mask's type; a stride of 0 marks a dimension over which the
// mask broadcasts and the gradient is summed. Every other position is written.
struct MaskGradient {
  void* data = nullptr;  // nullptr: not wanted
  int64_t batch_stride = 0;
  int64_t head_stride = 0;
  int64_t query_stride = 0;
  int64_t key_stride = 0;
};

struct SoftmaxGradients {
  ConstTensor out;             // of the forward, [B,H,T,Dv]
  const float* lse = nullptr;  // of the forward, [B,H,T] contiguous
  ConstTensor grad_out;        // [B,H,T,Dv]
  MutTensor dq, dk, dv;        // shapes of q, k, v; written whole
  MaskGradient dmask;
};

// Writes out and lse: [B,H,T] contiguous, natural log of sum_s exp(score); -inf for a query that
// sees nothing. lse may be nullptr.
void softmax_attention_forward(const SoftmaxParams& params, const MutTensor& out, float* lse);

// Writes dq, dk, dv and, when asked, dmask.
void softmax_attention_backward(const SoftmaxParams& params, const SoftmaxGradients& gradients);

// The definition: plain loops in double, every dtype, one thread.
void softmax_attention_forward_reference(const SoftmaxParams& params, const MutTensor& out,
                                         float* lse);
// Recomputes what it needs: gradients.out and gradients.lse are not read.
void softmax_attention_backward_reference(const SoftmaxParams& params,
                                          const SoftmaxGradients& gradients);

}  // namespace hedgerow::kernels
