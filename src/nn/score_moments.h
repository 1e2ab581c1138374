// Means and covariances of rows of attention scores, summed over text.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace hedgerow::nn {

// Of rows of n scores, in groups (heads, or heads and query positions), each of as many rows. The
// last `within` dimensions of groups have means of their own and one scatter about them. In
// float64. Sums are taken about the mean, and merged as Chan, Golub and LeVeque do (1983), so that
// neither large means nor many rows cost digits.
struct ScoreMoments {
  int64_t count = 0;   // rows of each group
  int64_t within = 0;  // dimensions
  at::Tensor mean;     // [groups..,n]
  at::Tensor scatter;  // [groups but those within..,n,n]: sum of (s - mean)(s - mean)^T

  // No rows yet. 8 n bytes a group, and 8 n^2 a scatter; none on the Meta device.
  static ScoreMoments zeros(const std::vector<int64_t>& groups, int64_t length, int64_t within = 0,
                            at::Device device = at::kCPU);

  // rows [groups..,N,n] of any floating dtype. Throws Error unless all are finite.
  void add(const at::Tensor& rows);
  // Throws Error unless the groups and lengths are the same.
  void merge(const ScoreMoments& other);
  // All groups of a dimension that is not within as one.
  ScoreMoments pooled(int64_t dim = 0) const;
  // The same with means of their own: the dimension, which is moved behind the others, is within.
  ScoreMoments pooled_within(int64_t dim = 0) const;

  // [..,n,n]: the mean of (s - mean)(s - mean)^T. Throws Error before there are rows.
  at::Tensor covariance() const;
  // Sum of (s - other)(s - other)^T about other means [groups..,n].
  at::Tensor scatter_about(const at::Tensor& other) const;
  int64_t rows() const;  // of each scatter
  int64_t length() const { return mean.size(-1); }
};

// All of them as one, which must be at least one; and [i][part] over i, part by part.
ScoreMoments merged(const std::vector<ScoreMoments>& moments);
std::vector<ScoreMoments> merged_by_part(const std::vector<std::vector<ScoreMoments>>& moments);

// What the covariance [..,n,n] becomes when each row's mean is taken away, which softmax does not
// see.
at::Tensor row_centred(const at::Tensor& covariance);

// What a mechanism that is fitted to scores wants to know of those it takes the place of.
struct ScoreRequest {
  int64_t length = 0;          // n: keys (and queries) of a row
  bool by_query = false;       // each query position by itself: groups [H,n]; else [H]
  bool pool_heads = false;     // all heads together: groups [n], or none
  bool mean_by_query = false;  // groups [H,n], the latter within: each query position's own mean
  bool over_layers = false;    // of all converted layers together
};

// What it is told.
struct ScoreSample {
  std::vector<ScoreMoments> parts;  // of different texts, of the request's groups
  at::Tensor mean_weights;          // [H,n,n]: of each query and key, over all texts
};

}  // namespace hedgerow::nn
