// What a benchmark's result must be: float64, plain formulas, on a sample of queries, so that long
// sequences can be checked too.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "bench/methods.h"

namespace hedgerow::bench {

class RowReference {
 public:
  // x: inputs of the method, float32 (q, k, v [B,H,T,D] first, or what BenchMethod::inputs made);
  // grad_out of the output's shape. Samples up to 16 queries, fewer for long sequences, always the
  // first and the last.
  RowReference(const BenchMethod& method, const AttentionBenchConfig& config, const Tensors& x,
               const at::Tensor& grad_out, bool causal);

  const at::Tensor& rows() const { return rows_; }  // int64 [R]

  // got[0] is the output at the rows; got[1..] (may be missing) the gradients of sum(out * grad_out
  // over the sampled rows) for x. Largest |got - want| / max(1, max|want|); a NaN is returned as
  // such.
  double worst_error(const Tensors& got) const;

  // What float32 rounding allows: the exponent y carries 2^-24 |y|, and so does the weight.
  double tolerance() const { return tolerance_; }

  // Share of the visible weights that are not 0.
  double density() const { return density_; }

 private:
  at::Tensor rows_;
  Tensors want_;  // output, then gradients
  double tolerance_ = 0, density_ = 0;
};

}  // namespace hedgerow::bench
