// The leading principal components of samples too long for a covariance matrix, in one pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace hedgerow::analysis {

// Of vectors of d numbers: keeps the product of their covariance with r random directions, 16 d r
// bytes, from which Nystroem's method recovers the leading eigenvectors (Tropp, Yurtsever, Udell
// and Cevher, "Fixed-rank approximation of a positive-semidefinite matrix from streaming data",
// 2017, algorithm 3). In float64. With at most r - 1 samples, or a covariance of a rank below r,
// exact.
struct MatrixSketch {
  at::Tensor directions;  // [d,r], orthonormal
  at::Tensor products;    // [d,r]: sum of x (x . directions)
  at::Tensor sum;         // [d]
  double squares = 0;     // sum of |x|^2
  int64_t count = 0;

  // Throws Error unless 1 <= rank <= dim.
  static MatrixSketch make(int64_t dim, int64_t rank, uint64_t seed);
  void add(const at::Tensor& samples);  // [N,d]

  struct Components {
    at::Tensor eigenvalues;  // [r], falling
    at::Tensor vectors;      // [d,r]
    double total = 0;        // the whole variance
  };
  // Throws Error before there are samples.
  Components components() const;
};

// `count` coordinates that tell most about all, chosen greedily as ops::greedy_positions does, of
// the covariance vectors diag(eigenvalues) vectors^T; and the share of `total` left after each.
struct SketchSelection {
  std::vector<int64_t> coordinates;
  std::vector<double> left;  // [count + 1], 1 first
};
SketchSelection select_coordinates(const MatrixSketch::Components& components, int64_t count);

}  // namespace hedgerow::analysis
