#include "nn/score_moments.h"

#include <ATen/ATen.h>

#include "hedgerow/error.h"

namespace hedgerow::nn {

ScoreMoments ScoreMoments::zeros(const std::vector<int64_t>& groups, int64_t length) {
  std::vector<int64_t> sizes = groups;
  sizes.push_back(length);
  ScoreMoments moments;
  moments.mean = at::zeros(sizes, at::kDouble);
  sizes.push_back(length);
  moments.scatter = at::zeros(sizes, at::kDouble);
  return moments;
}

void ScoreMoments::add(const at::Tensor& rows) {
  HEDGEROW_CHECK(rows.dim() == scatter.dim() && rows.size(-1) == length(),
                 "scores: rows must be [groups.., N, ", length(), "] of the groups of ",
                 mean.sizes(), "; got ", rows.sizes());
  if (rows.size(-2) == 0) return;
  const at::Tensor x = rows.to(at::kDouble);
  HEDGEROW_CHECK(x.isfinite().all().item<bool>(), "scores: must be finite; got NaN or infinity");
  ScoreMoments some;
  some.count = rows.size(-2);
  some.mean = x.mean(-2);
  const at::Tensor centred = x - some.mean.unsqueeze(-2);
  some.scatter = centred.transpose(-1, -2).matmul(centred);
  merge(some);
}

void ScoreMoments::merge(const ScoreMoments& other) {
  HEDGEROW_CHECK(other.scatter.sizes() == scatter.sizes(),
                 "scores: moments of the same groups and length can be merged; got ",
                 other.mean.sizes(), " and ", mean.sizes());
  if (other.count == 0) return;
  const double ours = static_cast<double>(count), theirs = static_cast<double>(other.count);
  const at::Tensor step = other.mean - mean;
  mean = mean + step * (theirs / (ours + theirs));
  scatter = scatter + other.scatter +
            step.unsqueeze(-1) * step.unsqueeze(-2) * (ours * theirs / (ours + theirs));
  count += other.count;
}

ScoreMoments ScoreMoments::pooled(int64_t dim) const {
  HEDGEROW_CHECK(dim >= 0 && dim < mean.dim() - 1, "scores: there are ", mean.dim() - 1,
                 " dimensions of groups to pool; got ", dim);
  ScoreMoments one;
  one.count = count * mean.size(dim);
  one.mean = mean.mean(dim);
  const at::Tensor step = mean - one.mean.unsqueeze(dim);
  one.scatter = scatter.sum(dim) + (step.unsqueeze(-1) * step.unsqueeze(-2)).sum(dim) *
                                       static_cast<double>(count);
  return one;
}

at::Tensor ScoreMoments::covariance() const {
  HEDGEROW_CHECK(count > 0, "scores: a covariance needs rows; got none");
  return scatter / static_cast<double>(count);
}

at::Tensor row_centred(const at::Tensor& covariance) {
  const at::Tensor rows = covariance - covariance.mean(-1, /*keepdim=*/true);
  return rows - rows.mean(-2, /*keepdim=*/true);
}

}  // namespace hedgerow::nn
