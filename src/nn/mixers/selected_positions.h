// Positions that all queries of a layer look at: options and choices that attention from partial
// computation and what it is compared with have in common.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nn/mixer.h"

namespace hedgerow::nn {

// How many keys a mechanism of a fixed budget computes for a query, and of how long a sequence.
struct KeyBudget {
  int64_t positions = 0, length = 0;
};

// Options "positions_per_query" and "length"; and those with "selection", "first" and "seed".
std::vector<OptionSpec> key_budget_option_specs();
std::vector<OptionSpec> selection_option_specs();

// Throws Error that names the mechanism, the option and the value.
KeyBudget key_budget(const std::string& kind, const Options& options);

// The positions as the options choose them from moments of scores (of groups [], [G], ..) and the
// mean weights of the keys [..,n], ascending: int64 [P], [G,P], ... With "weighted", the residual
// of a key's score counts as much as the weight that the key gets: what is reconstructed badly
// where nobody looks does no harm.
at::Tensor chosen_positions(const Options& options, const std::vector<ScoreMoments>& parts,
                            const at::Tensor& mean_weights);

// Throws Error that names the mechanism and the value unless each row of [..,P] ascends in
// [0, length).
void check_positions(const std::string& kind, const at::Tensor& positions, int64_t length);

// Those of positions [P] that a sequence of so many keys has; checks them too.
at::Tensor positions_below(const std::string& kind, const at::Tensor& positions, int64_t num_keys,
                           int64_t length);

}  // namespace hedgerow::nn
