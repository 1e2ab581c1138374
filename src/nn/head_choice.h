// Fewer heads for a pretrained layer: which of its heads to keep, and how to mix the others of
// them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace hedgerow::nn {

// Sums over text of what a layer's H heads compute (analysis/head_grams.h), float64.
struct HeadGrams {
  at::Tensor logits;         // [H,H,H]: [h,a,b] = sum of Cov(J_a, J_b) under the weights of head h
  at::Tensor outputs;        // [H,H,H]: [h,a,b] = sum of o_ha . o_hb, o_ha = W_h V_a Wo_a
  at::Tensor contributions;  // [H,H]: sum of o_aa . o_bb
};

// Heads of the layer that its projections keep, ascending.
struct HeadChoice {
  std::vector<int64_t> key_heads, value_heads;
};

// Heads kept, and coefficients [kept,H] with which they stand in for every head: least squares of
// each head h in its own Gram matrix grams[h]. Kept heads are chosen one by one, each the one that
// leaves the smallest sum of residuals; ties go to the lowest.
struct StandIns {
  std::vector<int64_t> kept;
  at::Tensor coefficients;
};
StandIns choose_stand_ins(const at::Tensor& grams, int64_t count);

// Heads left when the others are taken away one by one, each time the one whose loss changes the
// sum of all contributions least.
std::vector<int64_t> prune_heads(const at::Tensor& contributions, int64_t count);

}  // namespace hedgerow::nn
