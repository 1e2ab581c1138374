// Fitting attention from partial computation (arXiv 2106.08823) to moments of scores: which
// positions to compute, and how the others follow from them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nn/score_moments.h"

namespace hedgerow::nn {

// How positions are chosen:
//   greedy    each the one that leaves the least residual (ops::greedy_positions)
//   cholesky  each the one of the largest residual variance (pivoted Cholesky)
//   variance  those of the largest variance
//   even      evenly spaced, 0 among them
//   random    of a seed
const std::vector<std::string>& selection_methods();

// `count` of n positions in the order of choice, int64 [count], or [G,count] for covariances
// [G,n,n]. With `first`, position 0 is the first choice (where it varies at all). Throws Error on
// an unknown method, a count outside [1,n], and where greedy or cholesky find fewer positions that
// add anything: it names the rank.
at::Tensor select_positions(const std::string& method, const at::Tensor& covariance, int64_t count,
                            bool first, int64_t seed);

// Share of the variance left when the first 0, 1, .. P positions [P] are known, [P + 1] numbers, of
// the covariance [n,n]; NaN without variance.
std::vector<double> residual_shares(const at::Tensor& covariance, const at::Tensor& positions);

// The same for the leading 0 .. n principal components: no choice of positions leaves less.
std::vector<double> residual_floor(const at::Tensor& eigenvalues);

// s ~ mean + matrix (s[positions] - mean[positions]).
struct ScoreReconstruction {
  at::Tensor matrix;  // [groups..,n,P] float64
  at::Tensor mean;    // [groups..,n]
  at::Tensor ridge;   // [groups..]: what was added, relative to the mean variance of the selected
  at::Tensor left;    // [groups..]: share of held-out variance that is left; of one part NaN
};

// Least squares with a ridge, chosen for each group by cross-validation over the parts: moments of
// different texts. positions [P] for all groups, or [groups..,P]. One part alone takes the least
// ridge. Throws Error with fewer rows than positions.
ScoreReconstruction fit_reconstruction(const std::vector<ScoreMoments>& parts,
                                       const at::Tensor& positions);

}  // namespace hedgerow::nn
