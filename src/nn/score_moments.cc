#include "nn/score_moments.h"

#include <ATen/ATen.h>

#include "hedgerow/error.h"

namespace hedgerow::nn {

namespace {

// sum over the groups within, and the rows, of x x^T: x [groups..,n] or [groups..,N,n] -> [..,n,n].
at::Tensor outer_sums(const at::Tensor& x, int64_t num_summed) {
  at::Tensor rows = x;
  if (num_summed == 0) rows = x.unsqueeze(-2);
  if (num_summed > 1) rows = x.flatten(-1 - num_summed, -2);
  return rows.transpose(-1, -2).matmul(rows);
}

}  // namespace

ScoreMoments ScoreMoments::zeros(const std::vector<int64_t>& groups, int64_t length, int64_t within,
                                 at::Device device) {
  std::vector<int64_t> means = groups, scatters = groups;
  means.push_back(length);
  scatters.resize(groups.size() - static_cast<size_t>(within));
  scatters.insert(scatters.end(), {length, length});
  ScoreMoments moments;
  moments.within = within;
  moments.mean = at::zeros(means, at::TensorOptions(device).dtype(at::kDouble));
  moments.scatter = at::zeros(scatters, at::TensorOptions(device).dtype(at::kDouble));
  return moments;
}

void ScoreMoments::add(const at::Tensor& rows) {
  HEDGEROW_CHECK(rows.dim() == mean.dim() + 1 && rows.size(-1) == length(),
                 "scores: rows must be [groups.., N, ", length(), "] of the groups of ",
                 mean.sizes(), "; got ", rows.sizes());
  if (rows.size(-2) == 0) return;
  const at::Tensor x = rows.to(at::kDouble);
  HEDGEROW_CHECK(x.isfinite().all().item<bool>(), "scores: must be finite; got NaN or infinity");
  ScoreMoments some;
  some.count = rows.size(-2);
  some.within = within;
  some.mean = x.mean(-2);
  some.scatter = outer_sums(x - some.mean.unsqueeze(-2), within + 1);
  merge(some);
}

void ScoreMoments::merge(const ScoreMoments& other) {
  HEDGEROW_CHECK(other.mean.sizes() == mean.sizes() && other.within == within,
                 "scores: moments of the same groups and length can be merged; got ",
                 other.mean.sizes(), " and ", mean.sizes());
  if (other.count == 0) return;
  const double ours = static_cast<double>(count), theirs = static_cast<double>(other.count);
  const at::Tensor step = other.mean - mean;
  mean = mean + step * (theirs / (ours + theirs));
  scatter = scatter + other.scatter + outer_sums(step, within) * (ours * theirs / (ours + theirs));
  count += other.count;
}

ScoreMoments ScoreMoments::pooled(int64_t dim) const {
  HEDGEROW_CHECK(dim >= 0 && dim < scatter.dim() - 2, "scores: there are ", scatter.dim() - 2,
                 " dimensions of groups to pool; got ", dim);
  ScoreMoments one;
  one.within = within;
  one.count = count * mean.size(dim);
  one.mean = mean.mean(dim);
  const at::Tensor step = mean - one.mean.unsqueeze(dim);
  one.scatter = scatter.sum(dim) + outer_sums(step, within).sum(dim) * static_cast<double>(count);
  return one;
}

ScoreMoments ScoreMoments::pooled_within(int64_t dim) const {
  HEDGEROW_CHECK(dim >= 0 && dim < scatter.dim() - 2, "scores: there are ", scatter.dim() - 2,
                 " dimensions of groups to pool; got ", dim);
  ScoreMoments one = *this;
  one.within = within + 1;
  one.mean = mean.movedim(dim, scatter.dim() - 3);
  one.scatter = scatter.sum(dim);
  return one;
}

at::Tensor ScoreMoments::covariance() const {
  HEDGEROW_CHECK(count > 0, "scores: a covariance needs rows; got none");
  return scatter / static_cast<double>(rows());
}

int64_t ScoreMoments::rows() const {
  int64_t all = count;
  for (int64_t i = 0; i < within; ++i) all *= mean.size(-2 - i);
  return all;
}

at::Tensor ScoreMoments::scatter_about(const at::Tensor& other) const {
  return scatter + outer_sums(mean - other, within) * static_cast<double>(count);
}

ScoreMoments merged(const std::vector<ScoreMoments>& moments) {
  ScoreMoments all = moments.front();
  for (size_t i = 1; i < moments.size(); ++i) all.merge(moments[i]);
  return all;
}

std::vector<ScoreMoments> merged_by_part(const std::vector<std::vector<ScoreMoments>>& moments) {
  std::vector<ScoreMoments> all = moments.front();
  for (size_t i = 1; i < moments.size(); ++i)
    for (size_t part = 0; part < all.size(); ++part) all[part].merge(moments[i][part]);
  return all;
}

at::Tensor row_centred(const at::Tensor& covariance) {
  const at::Tensor rows = covariance - covariance.mean(-1, /*keepdim=*/true);
  return rows - rows.mean(-2, /*keepdim=*/true);
}

}  // namespace hedgerow::nn
