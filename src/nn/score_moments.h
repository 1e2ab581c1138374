// Means and covariances of rows of attention scores, summed over text.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace hedgerow::nn {

// Of rows of n scores, in groups (heads, or heads and query positions), each of as many rows. In
// float64. Sums are taken about the mean, and merged as Chan, Golub and LeVeque do (1983), so that
// neither large means nor many rows cost digits.
struct ScoreMoments {
  int64_t count = 0;   // rows of each group
  at::Tensor mean;     // [groups..,n]
  at::Tensor scatter;  // [groups..,n,n]: sum of (s - mean)(s - mean)^T

  // No rows yet. 8 n (n + 1) bytes a group.
  static ScoreMoments zeros(const std::vector<int64_t>& groups, int64_t length);

  // rows [groups..,N,n] of any floating dtype. Throws Error unless all are finite.
  void add(const at::Tensor& rows);
  // Throws Error unless the groups and lengths are the same.
  void merge(const ScoreMoments& other);
  // All groups of a dimension as one.
  ScoreMoments pooled(int64_t dim = 0) const;

  // [groups..,n,n]: scatter / count. Throws Error before there are rows.
  at::Tensor covariance() const;
  int64_t length() const { return mean.size(-1); }
};

// What the covariance [..,n,n] becomes when each row's mean is taken away, which softmax does not
// see.
at::Tensor row_centred(const at::Tensor& covariance);

// What a mechanism that is fitted to scores wants to know of those it takes the place of.
struct ScoreRequest {
  int64_t length = 0;        // n: keys (and queries) of a row
  bool by_query = false;     // each query position by itself: groups [H,n]; else [H]
  bool pool_heads = false;   // all heads together: groups [n], or none
  bool over_layers = false;  // of all converted layers together
};

}  // namespace hedgerow::nn
