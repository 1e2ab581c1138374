// y = x W^T + b with W [out, in], optionally with a low-rank update (LoRA): + (alpha / r) x A^T
// B^T.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>

namespace hedgerow::nn {

class Linear : public torch::nn::Module {
 public:
  // Zeros, until they are loaded or set.
  Linear(int64_t in, int64_t out, bool with_bias);
  at::Tensor forward(const at::Tensor& x);

  // Adds trainable A [r,in] ~ N(0, 1/in) and B [out,r] = 0, and freezes W and b.
  void add_lora(int64_t rank, double alpha);
  // Folds the update into W, removes A and B, and lets W and b train again.
  void merge_lora();
  bool has_lora() const { return lora_a_.defined(); }

  at::Tensor weight, bias;  // [out,in], [out]; bias is undefined without one

 private:
  at::Tensor lora_a_, lora_b_;
  double lora_scale_ = 0;
};

}  // namespace hedgerow::nn
