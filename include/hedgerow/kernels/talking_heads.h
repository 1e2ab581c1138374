// Talking-heads attention on raw memory, forward and backward: heads mixed before and after the
// softmax.
//
//   J[b,a,t,s] = scale * q[b,a,t,:] . k[b,ga,s,:]                       a < Hk, ga = a / (Hk/Hkk)
//   L[b,h,t,s] = sum_a J[b,a,t,s] Pl[a,h] + mask[b,h,t,s]               h < H
//   W[b,h,t,:] = softmax or entmax over the visible s of L
//   U[b,c,t,s] = sum_h W[b,h,t,s] Pw[h,c]                               c < Hv
//   out[b,c,t,:] = sum_s drop(U)[b,c,t,s] v[b,gc,s,:]                   gc = c / (Hv/Hvv)
//   Pl = logits_proj + x_logits[b,t] + m_logits[b,s],  Pw = weights_proj + x_weights + m_weights
//
// q [B,Hk,T,D], k [B,Hkk,S,D], v [B,Hvv,S,Dv], out [B,Hv,T,Dv]; any sizes, 0 included; legend in
// types.h. logits_proj [Hk,H], nullptr: the identity, Hk = H; weights_proj [H,Hv], nullptr: the
// identity, H = Hv. The dynamic terms x_logits [B,T,Hk,H], m_logits [B,S,Hk,H], x_weights
// [B,T,H,Hv], m_weights [B,S,H,Hv] are each optional and need their projection. All are contiguous,
// float64 with float64 tensors, else float32.
//
// A key is visible to a head h of the H where the boolean mask is true there, the floating mask is
// not -inf there, and, with is_causal, s <= t + (S - T). What no head sees is never read into a
// result: NaN there changes nothing. A row that sees nothing has W = 0, and zero gradients. alpha
// nullptr is softmax. Dropout acts on U as in softmax.h, by (seed, b, c, t, s).
//
// float32 and bfloat16 run the fused kernels (float32 accumulation); float64 runs the reference.
// Results do not depend on the number of threads, bit for bit. Scratch per thread is O(T + S):
// a tile of query rows holds the scores of all heads at once.
// FLOPs per (t, s): 2 (Hk D + Hk H + H Hv + Hv Dv) forward, 2 (3 Hk D + 2 Hv Dv + 4 Hk H + 3 H Hv)
// backward; half when causal.
// Source: Shazeer, Lan, Cheng, Ding, Hou, "Talking-Heads Attention" (arXiv 2003.02436).
#pragma once

#include <cstdint>

#include "hedgerow/kernels/softmax.h"
#include "hedgerow/kernels/types.h"

namespace hedgerow::kernels {

struct TalkingHeadsParams {
  DType dtype = DType::kFloat32;  // of q, k, v, out and their gradients
  int64_t batch = 0;              // B
  int64_t key_heads = 0;          // Hk
  int64_t key_kv_heads = 0;       // Hkk: heads of k, divides Hk
  int64_t heads = 0;              // H
  int64_t value_heads = 0;        // Hv
  int64_t value_kv_heads = 0;     // Hvv: heads of v, divides Hv
  int64_t queries = 0;            // T
  int64_t keys = 0;               // S
  int64_t width = 0;              // D
  int64_t value_width = 0;        // Dv
  ConstTensor q, k, v;
  const void* logits_proj = nullptr;   // Pl
  const void* weights_proj = nullptr;  // Pw
  const void* x_logits = nullptr;
  const void* m_logits = nullptr;
  const void* x_weights = nullptr;
  const void* m_weights = nullptr;
  const double* alpha = nullptr;  // of head h at alpha[h * alpha_stride]; >= 1
  int64_t alpha_stride = 0;       // 0: one for all heads
  Mask mask;                      // over [B,H,T,S]
  bool is_causal = false;
  double scale = 1.0;
  double dropout_p = 0.0;  // in [0, 1)
  uint64_t dropout_seed = 0;
};

// What is written, whole. Pointers that are nullptr are not wanted; the others have the shapes and
// types of what they are the gradients of.
struct TalkingHeadsGradients {
  ConstTensor grad_out;  // [B,Hv,T,Dv]
  MutTensor dq, dk, dv;  // required
  void* dlogits_proj = nullptr;
  void* dweights_proj = nullptr;
  void* dx_logits = nullptr;
  void* dm_logits = nullptr;
  void* dx_weights = nullptr;
  void* dm_weights = nullptr;
  double* dalpha = nullptr;  // [H]: one for each head, also where they share one alpha
  MaskGradient dmask;
};

void talking_heads_forward(const TalkingHeadsParams& params, const MutTensor& out);
// Needs nothing of the forward: a tile makes its weights again.
void talking_heads_backward(const TalkingHeadsParams& params,
                            const TalkingHeadsGradients& gradients);

// The definition: plain loops in double, every dtype, one thread.
void talking_heads_forward_reference(const TalkingHeadsParams& params, const MutTensor& out);
void talking_heads_backward_reference(const TalkingHeadsParams& params,
                                      const TalkingHeadsGradients& gradients);

}  // namespace hedgerow::kernels
