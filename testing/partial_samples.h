// Rows of the table of sample inputs for attention from partial computation.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ops/attention_weights/attention_weights.h"
#include "ops/partial_attention/partial_attention.h"
#include "testing/entmax_samples.h"
#include "testing/operator_inputs.h"

namespace hedgerow::testing_support::samples {

inline int64_t num_positions(const Sizes& n) { return std::min(n.E, n.S); }

// Distinct positions, in no order: of [P], or of other leading sizes, where rows differ.
inline at::Tensor positions_of(const Sizes& n, std::vector<int64_t> rows = {}) {
  const int64_t count = num_positions(n), step = n.S / std::max<int64_t>(count, 1);
  int64_t total = 1;
  for (const int64_t size : rows) total *= size;
  rows.push_back(count);
  const at::Tensor first = at::arange(total, at::kLong).unsqueeze(1),
                   spread = at::arange(count, at::kLong).mul(step);
  return first.sub(spread).remainder(std::max<int64_t>(n.S, 1)).view(rows);
}

inline at::Tensor reconstruction_of(const Sizes& n, at::ScalarType dtype,
                                    std::vector<int64_t> rows = {}) {
  rows.insert(rows.end(), {n.S, num_positions(n)});
  return random(rows, dtype, 80, 0.5);
}
inline at::Tensor mean_of(const Sizes& n, at::ScalarType dtype, std::vector<int64_t> rows = {}) {
  rows.push_back(n.S);
  return random(rows, dtype, 81);
}

// Everything but q, k and v.
inline std::vector<
    std::pair<std::string, std::function<ops::PartialInputs(const Sizes&, at::ScalarType)>>>
partial_inputs() {
  using ops::PartialInputs;
  const auto common = [](const Sizes& n, at::ScalarType d) {
    PartialInputs in;
    in.positions = positions_of(n);
    in.reconstruction = reconstruction_of(n, d);
    return in;
  };
  return {{"mean",
           [=](const Sizes& n, at::ScalarType d) {
             PartialInputs in = common(n, d);
             in.mean = mean_of(n, d);
             return in;
           }},
          {"causal, masked",
           [=](const Sizes& n, at::ScalarType d) {
             PartialInputs in = common(n, state_dtype(d));
             in.mean = mean_of(n, state_dtype(d));
             in.attn_mask = bool_mask({n.B, 1, 1, n.S}, 11);
             in.is_causal = true;
             return in;
           }},
          {"by head, bias",
           [](const Sizes& n, at::ScalarType d) {
             PartialInputs in;
             in.positions = positions_of(n, {n.H});
             in.reconstruction = reconstruction_of(n, d, {n.H});
             in.mean = mean_of(n, d, {n.H});
             in.attn_mask = float_mask({n.H, n.T, n.S}, d, 13);
             in.scale = 0.3;
             return in;
           }},
          {"entmax, dropout",
           [=](const Sizes& n, at::ScalarType d) {
             PartialInputs in = common(n, d);
             in.alpha = head_alphas(n, d);
             in.dropout_p = 0.3;
             in.dropout_seed = 5;
             return in;
           }},
          {"entmax by head", [=](const Sizes& n, at::ScalarType d) {
             PartialInputs in = common(n, d);
             in.reconstruction = reconstruction_of(n, d, {n.H});
             in.alpha = scalar_alpha(1.5, d);
             in.is_causal = true;
             return in;
           }}};
}

// With what is own for each query too.
inline auto partial_inputs_with_own() {
  using ops::PartialInputs;
  auto rows = partial_inputs();
  for (const bool by_head : {false, true}) {
    const std::string label = by_head ? "own of queries and heads" : "own of queries";
    rows.push_back({label, [by_head](const Sizes& n, at::ScalarType d) {
                      const std::vector<int64_t> own = {by_head ? n.H : 1, n.T};
                      PartialInputs in;
                      in.positions = positions_of(n, own);
                      in.reconstruction = reconstruction_of(n, d, own);
                      in.mean = mean_of(n, d, own);
                      in.is_causal = by_head;
                      if (by_head) in.alpha = scalar_alpha(1.3, d);
                      if (!by_head) in.attn_mask = float_mask({n.B, 1, 1, n.S}, d, 13);
                      return in;
                    }});
  }
  rows.push_back({"own positions, common R", [](const Sizes& n, at::ScalarType d) {
                    PartialInputs in;
                    in.positions = positions_of(n, {1, n.T});
                    in.reconstruction = reconstruction_of(n, d);
                    return in;
                  }});
  return rows;
}

inline ops::WeightsInputs partial_weights(const ops::PartialInputs& in) {
  return {.kind = "partial",
          .attn_mask = in.attn_mask,
          .is_causal = in.is_causal,
          .scale = in.scale,
          .alpha = in.alpha,
          .positions = in.positions,
          .reconstruction = in.reconstruction,
          .mean = in.mean};
}

inline std::vector<Sample> partial_public(bool selected) {
  std::vector<Sample> out;
  for (const auto& [label, inputs] : selected ? partial_inputs() : partial_inputs_with_own())
    out.push_back({label, [=, inputs = inputs](const Sizes& n, at::ScalarType d) -> Stack {
                     ops::PartialInputs in = inputs(n, d);
                     const Qkv x = qkv(n, d);
                     in.q = x.q;
                     in.k = x.k;
                     in.v = x.v;
                     const int64_t heads = in.positions.dim() == 2 ? n.H : n.Hkv;
                     if (selected) in.k = random({n.B, heads, num_positions(n), n.D}, d, 82);
                     return stack_of(in);
                   }});
  return out;
}

inline at::Tensor covariance_of(const Sizes& n, at::ScalarType dtype, bool by_head) {
  std::vector<int64_t> sizes = {n.S, n.S};
  if (by_head) sizes.insert(sizes.begin(), n.H);
  const at::Tensor x = random(sizes, at::kDouble, 83);
  return (at::matmul(x, x.transpose(-1, -2)) / (n.S + 1) + at::eye(n.S, at::kDouble)).to(dtype);
}

inline std::vector<Sample> selected_samples(bool backward) {
  std::vector<Sample> out;
  for (const bool by_head : {false, true})
    out.push_back({by_head ? "by head" : "common", [=](const Sizes& n, at::ScalarType d) {
                     const Qkv x = qkv(n, d);
                     const at::Tensor positions = positions_of(n, {by_head ? n.H : 1, n.T});
                     Stack stack{x.q, x.k, positions};
                     if (backward)
                       stack.insert(stack.begin(),
                                    random({n.B, n.H, n.T, num_positions(n)}, state_dtype(d), 84));
                     return stack;
                   }});
  return out;
}

inline std::vector<Sample> greedy() {
  std::vector<Sample> out;
  for (const bool by_head : {false, true})
    out.push_back({by_head ? "by head" : "common", [by_head](const Sizes& n, at::ScalarType d) {
                     return Stack{covariance_of(n, d, by_head), num_positions(n)};
                   }});
  return out;
}

inline std::vector<Sample> lmmse() {
  std::vector<Sample> out;
  for (const bool by_head : {false, true})
    out.push_back({by_head ? "by head" : "common", [by_head](const Sizes& n, at::ScalarType d) {
                     const at::Tensor positions =
                         by_head ? positions_of(n, {n.H}) : positions_of(n);
                     return Stack{covariance_of(n, d, by_head), positions, by_head ? 0.1 : 0.0};
                   }});
  return out;
}

inline std::vector<OperatorSamples> partial_rows() {
  std::vector<OperatorSamples> t;
  t.push_back({"partial_attention", partial_public(false)});
  t.push_back({"partial_attention_selected", partial_public(true)});
  t.push_back({"selected_scores", selected_samples(false)});
  t.push_back({"selected_scores_backward", selected_samples(true)});
  t.push_back({.op = "greedy_positions", .samples = greedy(), .has_gradient = false});
  t.push_back({"lmmse_reconstruction", lmmse()});
  return t;
}

}  // namespace hedgerow::testing_support::samples
