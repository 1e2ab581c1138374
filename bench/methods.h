// The mechanisms that `hedgerow bench ops` times. A new one adds an entry to the list in
// methods.cc.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bench/attention_speed.h"

namespace hedgerow::bench {

using Tensors = std::vector<at::Tensor>;

struct BenchMethod {
  std::string name;
  bool takes_alpha = false;  // one row for each of AttentionBenchConfig::alphas

  // Inputs beyond q, k, v [B,H,T,D]; all get gradients. Null: none.
  Tensors (*extra_inputs)(const AttentionBenchConfig& config, at::Generator& generator) = nullptr;

  // x: q, k, v and the extra inputs -> [B,H,T,D].
  at::Tensor (*run)(const AttentionBenchConfig& config, const Tensors& x, bool causal) = nullptr;

  // The best formulation from ATen operators, or null.
  at::Tensor (*eager)(const AttentionBenchConfig& config, const Tensors& x, bool causal) = nullptr;

  // The definition: float64 weights [B,H,R,S] that multiply v, for x in float64 with R queries;
  // `hidden` [R,S] marks keys that a query does not see. Raises *largest to the largest absolute
  // exponent, which rounding scales with.
  at::Tensor (*row_weights)(const AttentionBenchConfig& config, const Tensors& x,
                            const at::Tensor& hidden, double* largest) = nullptr;

  // Products that the scheme executes (docs/methods/*.md), a causal triangle counted half; for
  // sparse weights those of the measured density.
  double (*flops)(const AttentionBenchConfig& config, const AttentionBenchRow& row) = nullptr;
};

const std::vector<BenchMethod>& bench_methods();
// Throws Error listing the known ones.
const BenchMethod& bench_method(const std::string& name);

// alpha as [H] float64: a number for all heads, or "mix": 1.2 to 1.9 over the heads.
at::Tensor alpha_of(const std::string& text, int64_t heads);

}  // namespace hedgerow::bench
