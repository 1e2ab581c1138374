// The type in which linear layers multiply.
#pragma once

namespace hedgerow::nn {

// Whether this CPU multiplies bfloat16 matrices faster than float32 ones.
bool has_fast_bfloat16();

// While one of these lives, Linear layers that this thread runs round what they multiply to
// bfloat16, forward and backward, and sum in float32: about twice as fast where the CPU has
// instructions for it. Weights, activations and gradients stay float32. For training, whose noise
// is far above this rounding; figures are measured without it.
class LinearInBfloat16 {
 public:
  explicit LinearInBfloat16(bool enable = true);
  ~LinearInBfloat16();
  LinearInBfloat16(const LinearInBfloat16&) = delete;
  LinearInBfloat16& operator=(const LinearInBfloat16&) = delete;

  static bool enabled();

 private:
  bool before_;
};

}  // namespace hedgerow::nn
