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

// Inputs of a method and of the exact attention beside which it is timed.
struct BenchInputs {
  Tensors own, exact;
};

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

  // The rest is for methods that take positions.

  std::string family = {};       // --method FAMILY times all methods of the family
  bool takes_positions = false;  // one row for each of AttentionBenchConfig::positions

  // All inputs, in place of q, k, v and extra ones. The first has the output's shape
  // [B,H or 1,T,..] and rows of queries; the third has rows of keys, [B,H or 1,S,..].
  BenchInputs (*inputs)(const AttentionBenchConfig& config, int64_t length,
                        at::Generator& generator) = nullptr;

  // Inputs [1,T,..] that are each query's own, by their places.
  std::vector<size_t> by_query = {};

  // What the method stands for, with our own softmax_attention and with
  // scaled_dot_product_attention. Null: not timed; scaled_dot_product_attention of q, k, v.
  at::Tensor (*exact)(const AttentionBenchConfig& config, const Tensors& x, bool causal) = nullptr;
  at::Tensor (*sdpa)(const AttentionBenchConfig& config, const Tensors& x, bool causal) = nullptr;

  // The definition's output from row_weights. Null: weights times v.
  at::Tensor (*row_output)(const AttentionBenchConfig& config, const Tensors& x,
                           const at::Tensor& weights) = nullptr;
};

const std::vector<BenchMethod>& bench_methods();
// Those of this name or family. Throws Error listing the known ones.
std::vector<const BenchMethod*> bench_methods_named(const std::string& name);
// Throws Error where the name is none, or that of a family.
const BenchMethod& bench_method(const std::string& name);

// Visible pairs of all heads and sequences, a causal triangle counted half.
double pairs_of(const AttentionBenchConfig& config, const AttentionBenchRow& row);
bool is_training(const AttentionBenchRow& row);
void raise_to(const at::Tensor& sizes, double* largest);

// alpha as [H] float64: a number for all heads, or "mix": 1.2 to 1.9 over the heads.
at::Tensor alpha_of(const std::string& text, int64_t heads);

}  // namespace hedgerow::bench
