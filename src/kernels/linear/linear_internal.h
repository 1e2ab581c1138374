// What the fast kernels share above the vector code: both public attentions as one call, and the
// scratch memory of a task.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/aligned_buffer.h"
#include "hedgerow/kernels/linear.h"

namespace hedgerow::kernels::linear {

// Hedgehog attention, or with `given` linear attention over features: q and k then hold features,
// dim is their number and there are no maps.
struct ForwardCall : HedgehogForward {
  bool given = false;
};
struct BackwardCall : HedgehogBackward {
  bool given = false;
};

ForwardCall as_call(const HedgehogForward& p);
ForwardCall as_call(const LinearForward& p);
BackwardCall as_call(const HedgehogBackward& p);
// grad_phi_q and grad_phi_k become grad_q and grad_k.
BackwardCall as_call(const LinearBackward& p);

// A step is a causal call with one token whose final state goes where the initial one was.
LinearForward as_forward(const LinearStep& p);
HedgehogForward as_forward(const HedgehogStep& p);

// Fast paths: float32 and bfloat16, everything else as the public functions.
void attention_forward(const ForwardCall& p);
void attention_backward(const BackwardCall& p);
void features_forward(const FeaturesForward& p);
void features_backward(const FeaturesBackward& p);
void attention_step(const HedgehogStep& p, bool given);

template <typename Call>
int64_t num_features(const Call& p, bool given) {
  return given ? p.dim : feature_width(p.map, p.width);
}

// Partial sums of weight gradients over the batch: at most this many, whatever the batch.
inline constexpr int64_t kBatchSlots = 8;

// Scratch of one task: cut off a buffer that the thread keeps, so that calls do not pay for fresh
// pages (1 us for each). Rows start at multiples of 64 bytes.
class Arena {
 public:
  explicit Arena(int64_t floats);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  float* take(int64_t floats);
  // Floats that take(n) uses.
  static int64_t rounded(int64_t floats) { return (floats + 15) / 16 * 16; }

 private:
  float* next_;
  float* end_;
};

}  // namespace hedgerow::kernels::linear
