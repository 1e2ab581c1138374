// Speed and memory of every attention of this library against scaled_dot_product_attention, in one
// process, after the result was checked. What `hedgerow bench ops` prints.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "metrics/attention_cost.h"

namespace hedgerow::bench {

struct AttentionBenchConfig {
  std::vector<std::string> methods = {"softmax", "hedgehog"};  // of bench/methods.cc
  std::vector<std::string> masks = {"dense", "causal"};
  std::vector<std::string> steps = {"forward", "forward+backward"};
  std::vector<int64_t> lengths = {512, 1024, 2048, 4096};
  int64_t batch = 1;
  int64_t heads = 12;
  int64_t head_dim = 64;
  double input_scale = 1.0;  // factor on q and k: large inputs take the exact path of "exp"
  std::string map = "exp";   // of hedgehog
  std::vector<std::string> alphas = {"1.5"};  // of entmax: numbers, or "mix": 1.2 to 1.9 by head
  std::string alpha;                          // the row's, while it is measured
  // Selected keys of partial attention; a row needs at most its length.
  std::vector<int64_t> positions = {8, 16, 24, 32, 48};
  int64_t num_positions = 0;  // the row's, while it is measured
  int64_t rounds = 7;
  double min_seconds = 0.02;
  int64_t best_of = 1;              // whole measurements; the one with the lowest ratio is kept
  int64_t max_sdpa_length = 8192;   // longer rows time ours alone
  int64_t max_eager_length = 1024;  // longer rows leave out ATen formulations: T x S tensors
  bool memory = true;
};

struct AttentionBenchRow {
  std::string method, mask, step;
  std::string alpha;      // of entmax, else empty
  int64_t positions = 0;  // of partial attention, else 0
  int64_t length = 0, heads = 0, head_dim = 0;
  double seconds = 0;
  std::optional<double> sdpa_seconds;   // scaled_dot_product_attention, same mask and step
  std::optional<double> exact_seconds;  // our softmax_attention in its place; partial attention
  std::optional<double> eager_seconds;  // the best formulation from ATen operators
  // Multiplications of a forward over those of exact attention; partial attention.
  std::optional<metrics::AttentionShares> multiplications;
  std::optional<double> density;  // share of visible weights that are not 0; entmax
  double gflops = 0;              // products that the scheme executes, causal counted half
  double percent_of_peak = 0;     // of the float32 multiply-add peak of the threads in use
  double error = 0;               // worst relative error against float64, checked before timing
  int64_t peak_bytes = -1;        // -1: not measured
  int64_t sdpa_peak_bytes = -1, eager_peak_bytes = -1;
  std::optional<double> ratio() const {
    if (!sdpa_seconds) return std::nullopt;
    return seconds / *sdpa_seconds;
  }
  std::optional<double> exact_ratio() const {
    if (!exact_seconds) return std::nullopt;
    return seconds / *exact_seconds;
  }
};

// Calls `report` after each row. Throws Error on unknown names or sizes below 1, Failure when a
// result is wrong: then nothing of it is timed.
std::vector<AttentionBenchRow> bench_attention(
    const AttentionBenchConfig& config,
    const std::function<void(const AttentionBenchRow&)>& report);

// One generated token for all heads, state updated in place: the kernel alone and the operator.
struct DecodeBenchRow {
  int64_t heads = 0, head_dim = 0;
  double kernel_seconds = 0, operator_seconds = 0;
};
DecodeBenchRow bench_decode(const AttentionBenchConfig& config);

}  // namespace hedgerow::bench
