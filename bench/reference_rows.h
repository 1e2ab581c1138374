// What a benchmark's result must be: float64, plain formulas, on a sample of queries, so that long
// sequences can be checked too.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hedgerow::bench {

struct RowProblem {
  at::Tensor q, k, v;   // [B,H,T,D], float32
  at::Tensor wq, wk;    // [H,D,D] of the feature map
  at::Tensor grad_out;  // [B,H,T,Dv]
  bool causal = false;
  std::string map;  // "" = softmax attention, "exp" = Hedgehog's
};

class RowReference {
 public:
  // Samples up to 16 queries, fewer for long sequences, always the first and the last.
  explicit RowReference(const RowProblem& problem);

  const at::Tensor& rows() const { return rows_; }  // int64 [R]
  size_t num_inputs() const { return problem_.map.empty() ? 3 : 5; }

  // got[0] is the output at the rows; got[1..] (may be missing) the gradients of sum(out * grad_out
  // over the sampled rows) for q, k, v, wq, wk. Largest |got - want| / max(1, max|want|); a NaN is
  // returned as such.
  double worst_error(const std::vector<at::Tensor>& got) const;

  // What float32 rounding allows: the exponent y carries 2^-24 |y|, and so does the weight.
  double tolerance() const { return tolerance_; }

 private:
  RowProblem problem_;
  at::Tensor rows_;
  std::vector<at::Tensor> want_;  // output, then gradients
  double tolerance_ = 0;
};

}  // namespace hedgerow::bench
