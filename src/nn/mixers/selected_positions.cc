#include "nn/mixers/selected_positions.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>

#include "hedgerow/error.h"
#include "nn/score_fit.h"

namespace hedgerow::nn {

std::vector<OptionSpec> key_budget_option_specs() {
  return {
      {"positions_per_query", int64_t{16}, "P: keys that a query meets", {}},
      {"length", int64_t{128}, "n: keys of the sequences that it is made for", {}},
  };
}

std::vector<OptionSpec> selection_option_specs() {
  std::vector<OptionSpec> specs = key_budget_option_specs();
  specs.push_back({"selection", std::string("greedy"), "how positions are chosen from scores",
                   selection_methods()});
  specs.push_back({"weighted", true, "residuals count by the weights that keys get", {}});
  specs.push_back({"first", true, "position 0 is among them", {}});
  specs.push_back({"seed", int64_t{0}, "seed of random positions", {}});
  return specs;
}

KeyBudget key_budget(const std::string& kind, const Options& options) {
  const KeyBudget budget{options.get_int("positions_per_query"), options.get_int("length")};
  HEDGEROW_CHECK(budget.length >= 1, kind, ": length must be at least 1; got ", budget.length);
  HEDGEROW_CHECK(budget.positions >= 1 && budget.positions <= budget.length, kind,
                 ": positions_per_query must be in [1, ", budget.length, "], the length; got ",
                 budget.positions);
  return budget;
}

at::Tensor chosen_positions(const Options& options, const std::vector<ScoreMoments>& parts,
                            const at::Tensor& mean_weights) {
  at::Tensor covariance = merged(parts).covariance();
  if (options.get_bool("weighted")) {
    // Greedy on this is greedy on the weighted sum of residuals.
    const at::Tensor root = mean_weights.to(at::kDouble).sqrt();
    covariance = covariance * root.unsqueeze(-1) * root.unsqueeze(-2);
  }
  const at::Tensor chosen = select_positions(options.get_string("selection"), covariance,
                                             options.get_int("positions_per_query"),
                                             options.get_bool("first"), options.get_int("seed"));
  return std::get<0>(chosen.sort(-1));
}

void check_positions(const std::string& kind, const at::Tensor& positions, int64_t length) {
  const at::Tensor rows = positions.contiguous();
  const int64_t* const begin = rows.const_data_ptr<int64_t>();
  const int64_t count = rows.size(-1);
  for (const int64_t* p = begin; p != begin + rows.numel(); p += count) {
    HEDGEROW_CHECK(p[0] >= 0 && p[count - 1] < length, kind, ": positions must ascend in [0, ",
                   length, "); got ", p[0], " .. ", p[count - 1]);
    const int64_t* wrong = std::adjacent_find(p, p + count, std::greater_equal<>());
    HEDGEROW_CHECK(wrong == p + count, kind, ": positions must ascend in [0, ", length, "); got ",
                   wrong[0], " before ", wrong[1]);
  }
}

at::Tensor positions_below(const std::string& kind, const at::Tensor& positions, int64_t num_keys,
                           int64_t length) {
  check_positions(kind, positions, length);
  const int64_t* p = positions.const_data_ptr<int64_t>();
  return positions.narrow(0, 0, std::lower_bound(p, p + positions.size(0), num_keys) - p);
}

}  // namespace hedgerow::nn
