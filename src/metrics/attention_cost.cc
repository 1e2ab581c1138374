#include "metrics/attention_cost.h"

#include "hedgerow/error.h"

namespace hedgerow::metrics {
namespace {

void check_sizes(const AttentionSizes& n) {
  for (const int64_t size : {n.queries, n.keys, n.heads, n.head_dim, n.value_dim, n.model_dim})
    HEDGEROW_CHECK(size >= 0, "attention cost: sizes must be at least 0; got ", size);
}

void check_positions(const AttentionSizes& n, int64_t positions) {
  HEDGEROW_CHECK(positions >= 1 && positions <= n.keys,
                 "attention cost: positions must be from 1 to the number of keys, ", n.keys,
                 "; got ", positions);
}

// Projections of all queries and outputs, and of keys and values at so many positions.
int64_t projections(const AttentionSizes& n, int64_t projected_keys, int64_t projected_values) {
  const int64_t columns = n.queries * n.head_dim + projected_keys * n.head_dim +
                          projected_values * n.value_dim + n.queries * n.value_dim;
  return n.model_dim * n.heads * columns;
}

double share(int64_t part, int64_t whole) {
  return part == whole ? 1.0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

AttentionCost exact_cost(const AttentionSizes& n) {
  check_sizes(n);
  AttentionCost cost;
  cost.scores = n.heads * n.queries * n.keys * n.head_dim;
  cost.core = cost.scores + n.heads * n.queries * n.keys * n.value_dim;
  cost.layer = cost.core + projections(n, n.keys, n.keys);
  return cost;
}

AttentionCost partial_cost(const AttentionSizes& n, int64_t positions) {
  check_sizes(n);
  check_positions(n, positions);
  AttentionCost cost;
  cost.scores = n.heads * n.queries * positions * (n.head_dim + n.keys);
  cost.core = cost.scores + n.heads * n.queries * n.keys * n.value_dim;
  cost.layer = cost.core + projections(n, positions, n.keys);
  return cost;
}

AttentionCost own_positions_cost(const AttentionSizes& n, int64_t positions) {
  AttentionCost cost = partial_cost(n, positions);
  cost.layer = cost.core + projections(n, n.keys, n.keys);
  return cost;
}

AttentionCost linformer_cost(const AttentionSizes& n, int64_t positions) {
  check_sizes(n);
  check_positions(n, positions);
  const int64_t rows = n.heads * positions * (n.keys + n.queries);  // projected, then attended
  AttentionCost cost;
  cost.scores = rows * n.head_dim;
  cost.core = cost.scores + rows * n.value_dim;
  cost.layer = cost.core + projections(n, n.keys, n.keys);
  return cost;
}

AttentionCost selected_keys_cost(const AttentionSizes& n, int64_t positions) {
  check_sizes(n);
  check_positions(n, positions);
  AttentionSizes selected = n;
  selected.keys = positions;
  return exact_cost(selected);
}

AttentionCost window_cost(const AttentionSizes& n, int64_t positions) {
  check_sizes(n);
  check_positions(n, positions);
  const int64_t pairs = n.heads * n.queries * positions;
  AttentionCost cost;
  cost.scores = pairs * n.head_dim;
  cost.core = cost.scores + pairs * n.value_dim;
  cost.layer = cost.core + projections(n, n.keys, n.keys);
  return cost;
}

double break_even_positions(const AttentionSizes& n) {
  check_sizes(n);
  if (n.keys == 0 || n.head_dim == 0) return 0.0;
  const double keys = static_cast<double>(n.keys), width = static_cast<double>(n.head_dim);
  return keys * width / (keys + width);
}

AttentionShares shares_of(const AttentionCost& part, const AttentionCost& whole) {
  return {share(part.scores, whole.scores), share(part.core, whole.core),
          share(part.layer, whole.layer)};
}

}  // namespace hedgerow::metrics
