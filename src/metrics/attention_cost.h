// How many multiplications one attention layer makes: the one cost model that the analysis, the
// converter and the benchmark print. tests/attention_cost_test.cc holds it against multiplications
// counted in the reference kernels.
//
// Counted are products of two numbers that depend on the input or on weights: matrix products. Not
// counted: scaling by a constant (1 / sqrt(D), the normaliser of a row, dropout), additions
// (biases, masks, the mean of partial attention), exponentials. All pairs of queries and keys
// count, also those that a mask hides.
#pragma once

#include <cstdint>

namespace hedgerow::metrics {

// Of one sequence and one layer; T, S, H, D, Dv and M below. Keys have as many heads as queries.
struct AttentionSizes {
  int64_t queries = 0;    // T
  int64_t keys = 0;       // S
  int64_t heads = 0;      // H
  int64_t head_dim = 0;   // D
  int64_t value_dim = 0;  // Dv
  int64_t model_dim = 0;  // M, of the tokens that the four projections read and write
};

// Multiplications, all heads together. Each count contains the one before it.
struct AttentionCost {
  int64_t scores = 0;  // q k^T, or what stands for it
  int64_t core = 0;    // with the product of weights and values
  int64_t layer = 0;   // with the projections of queries, keys, values and output
};

// All of them throw Error where a size is negative or `positions` (P) is not in [1, S].

// scores H T S D; core + H T S Dv; layer + M H (T D + S D + S Dv + T Dv).
AttentionCost exact_cost(const AttentionSizes& sizes);

// Partial attention (docs/methods/partial.md) with positions and reconstruction common to all
// queries: scores H (T P D + T S P); core + H T S Dv; keys are projected at P positions only.
AttentionCost partial_cost(const AttentionSizes& sizes, int64_t positions);

// The same with positions by head or query: all keys are projected.
AttentionCost own_positions_cost(const AttentionSizes& sizes, int64_t positions);

// Linformer (arXiv 2006.04768): keys and values are projected along the sequence to P rows.
// scores H (P S D + T P D); core + H (P S Dv + T P Dv); projections as exact.
AttentionCost linformer_cost(const AttentionSizes& sizes, int64_t positions);

// Attention to the keys and values at P positions alone, nothing reconstructed: exact attention
// with S = P.
AttentionCost selected_keys_cost(const AttentionSizes& sizes, int64_t positions);

// P keys around each query, at the ends of the sequence too: scores H T P D; core + H T P Dv;
// projections as exact.
AttentionCost window_cost(const AttentionSizes& sizes, int64_t positions);

// The number of positions at which the scores of partial attention cost what exact ones do,
// S D / (S + D); fewer save multiplications, more waste them. 0 where S or D is 0.
double break_even_positions(const AttentionSizes& sizes);

// Each count over that of `whole`; 0 over 0 is 1.
struct AttentionShares {
  double scores = 1.0, core = 1.0, layer = 1.0;
};
AttentionShares shares_of(const AttentionCost& part, const AttentionCost& whole);

}  // namespace hedgerow::metrics
