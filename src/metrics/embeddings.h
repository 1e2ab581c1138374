// How alike two sets of embeddings of the same texts are.
#pragma once

#include <cstdint>
#include <vector>

namespace hedgerow::metrics {

// A row-major matrix that somebody else owns: `rows` embeddings of `width` numbers.
struct EmbeddingView {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
};

// Cosine of each row of `a` with the same row of `b`, [rows], accumulated in double. A row of zeros
// has cosine 0. Throws Error when the shapes differ.
std::vector<double> row_cosines(const EmbeddingView& a, const EmbeddingView& b);

// Mean of row_cosines. Throws Error when there are no rows.
double mean_cosine(const EmbeddingView& a, const EmbeddingView& b);

struct NeighbourAgreement {
  double nearest = 0.0;  // share of rows with the same nearest other row in both
  double top_k = 0.0;    // mean share of the k nearest other rows that both have
  int64_t k = 0;
};

// Compares the neighbourhoods, by cosine, of a row among all others in `a` and in `b`. The widths
// may differ, the number of rows may not. Equal cosines rank by row number. O(rows^2 width)
// operations, O(workers rows) memory; the result does not depend on the number of threads. Throws
// Error when there are fewer than k + 1 rows, or k < 1, or a value is not finite.
NeighbourAgreement neighbour_agreement(const EmbeddingView& a, const EmbeddingView& b,
                                       int64_t k = 10);

// The k nearest other rows of each row by cosine, nearest first: [rows][k].
std::vector<std::vector<int64_t>> nearest_rows(const EmbeddingView& a, int64_t k);

}  // namespace hedgerow::metrics
