#include "nn/score_fit.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hedgerow/error.h"
#include "hedgerow/ops.h"

namespace hedgerow::nn {
namespace {

// A position with less than this share of the largest variance adds nothing (as greedy_positions
// has it).
constexpr double kNoVariance = 1e-12;

// Ridges to choose from, relative to the mean variance of the selected scores; the least one only
// keeps a covariance of little rank regular.
constexpr double kRidges[] = {1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1};

// The covariance [n,n] of what position j does not explain.
at::Tensor without(const at::Tensor& covariance, int64_t j) {
  const at::Tensor column = covariance.select(1, j);
  const at::Tensor left = covariance - at::outer(column, column / column[j]);
  // zeros by definition; rounding would let them be chosen again
  left.select(0, j).zero_();
  left.select(1, j).zero_();
  return left;
}

double largest_variance(const at::Tensor& covariance) {
  return covariance.diagonal().max().item<double>();
}

// `before`: positions that were chosen already, for the message.
std::vector<int64_t> pivots(at::Tensor covariance, int64_t count, int64_t before) {
  const double least = kNoVariance * largest_variance(covariance);
  std::vector<int64_t> chosen;
  while (static_cast<int64_t>(chosen.size()) < count) {
    const int64_t j = covariance.diagonal().argmax().item<int64_t>();
    HEDGEROW_CHECK(covariance[j][j].item<double>() > least,
                   "selection: the covariance must have a rank of at least ", before + count,
                   ", the positions asked for; got ", before + static_cast<int64_t>(chosen.size()));
    chosen.push_back(j);
    covariance = without(covariance, j);
  }
  return chosen;
}

std::vector<int64_t> listed(const at::Tensor& positions) {
  const at::Tensor p = positions.to(at::kLong).contiguous();
  return {p.const_data_ptr<int64_t>(), p.const_data_ptr<int64_t>() + p.numel()};
}

std::vector<int64_t> greedily(const at::Tensor& covariance, int64_t count, int64_t before) {
  try {
    return listed(ops::greedy_positions(covariance, count));
  } catch (const c10::Error& e) {
    throw Error(concat("selection", before > 0 ? ", beside position 0: " : ": ",
                       e.what_without_backtrace()));
  }
}

// Those that do not look at what the positions before them explain.
std::vector<int64_t> ranked(const std::string& method, const at::Tensor& covariance, int64_t count,
                            int64_t seed) {
  const int64_t n = covariance.size(0);
  std::vector<int64_t> order;
  if (method == "even") {
    for (int64_t i = 0; i < count; ++i) order.push_back(i * n / count);
  } else if (method == "random") {
    order = listed(at::randperm(n, at::make_generator<at::CPUGeneratorImpl>(seed), at::kLong));
  } else {
    order = listed(covariance.diagonal().argsort(/*stable=*/true, -1, /*descending=*/true));
  }
  return order;
}

std::vector<int64_t> choose(const std::string& method, const at::Tensor& covariance, int64_t count,
                            bool first, int64_t seed) {
  const double variance = covariance[0][0].item<double>();
  first = first && variance > kNoVariance * largest_variance(covariance);
  std::vector<int64_t> chosen;
  if (first) chosen.push_back(0);
  const int64_t more = count - static_cast<int64_t>(chosen.size());
  if (more == 0) return chosen;
  if (method == "greedy" || method == "cholesky") {
    const at::Tensor rest = first ? without(covariance, 0) : covariance;
    const int64_t before = count - more;
    const std::vector<int64_t> others =
        method == "cholesky" ? pivots(rest, more, before) : greedily(rest, more, before);
    chosen.insert(chosen.end(), others.begin(), others.end());
    return chosen;
  }
  for (const int64_t j : ranked(method, covariance, count, seed)) {
    if (static_cast<int64_t>(chosen.size()) == count) break;
    if (!first || j != 0) chosen.push_back(j);
  }
  return chosen;
}

at::Tensor total_variance(const at::Tensor& matrices) {
  return matrices.diagonal(0, -2, -1).sum(-1);
}

// [groups..]: sum over the rows of `part` of |s - s^|^2, and the same for s^ = mean.
std::pair<at::Tensor, at::Tensor> squared_errors(const ScoreMoments& part, const at::Tensor& mean,
                                                 const at::Tensor& matrix,
                                                 const at::Tensor& positions) {
  const at::Tensor about = part.scatter_about(mean);  // [..,n,n]
  const at::Tensor select =                           // [..,n,P]: s[positions] = select^T s
      at::one_hot(positions, part.length()).to(at::kDouble).transpose(-1, -2);
  const at::Tensor residual =  // I - R select^T
      at::eye(part.length(), at::kDouble) - matrix.matmul(select.transpose(-1, -2));
  return {(residual.matmul(about) * residual).sum({-1, -2}), total_variance(about)};
}

// R with the ridge relative to the mean variance of the selected scores of each group.
at::Tensor least_squares(const at::Tensor& covariance, const at::Tensor& positions, double ridge) {
  const int64_t n = covariance.size(-1), count = positions.size(-1);
  const at::Tensor flat = covariance.reshape({-1, n, n});
  const at::Tensor at_positions = positions
                                      .expand([&] {
                                        std::vector<int64_t> sizes = covariance.sizes().vec();
                                        sizes.pop_back();
                                        sizes.back() = count;
                                        return sizes;
                                      }())
                                      .reshape({-1, count});
  const at::Tensor scale =
      flat.diagonal(0, 1, 2).gather(1, at_positions).mean(-1).clamp_min(1e-300);
  const at::Tensor matrix =
      ops::lmmse_reconstruction(flat / scale.view({-1, 1, 1}), at_positions, ridge);
  std::vector<int64_t> sizes = covariance.sizes().vec();
  sizes.back() = count;
  return matrix.reshape(sizes);
}

}  // namespace

const std::vector<std::string>& selection_methods() {
  static const std::vector<std::string> methods = {"greedy", "cholesky", "variance", "even",
                                                   "random"};
  return methods;
}

at::Tensor select_positions(const std::string& method, const at::Tensor& covariance, int64_t count,
                            bool first, int64_t seed) {
  const auto& known = selection_methods();
  HEDGEROW_CHECK(std::find(known.begin(), known.end(), method) != known.end(),
                 "selection: must be greedy, cholesky, variance, even or random; got ", method);
  const int64_t n = covariance.size(-1);
  HEDGEROW_CHECK(count >= 1 && count <= n, "selection: positions must be in [1, ", n, "]; got ",
                 count);
  if (covariance.dim() == 2)
    return at::tensor(choose(method, covariance.to(at::kDouble), count, first, seed), at::kLong);
  std::vector<at::Tensor> groups;
  for (const at::Tensor& one : covariance.unbind(0))
    groups.push_back(select_positions(method, one, count, first, seed));
  return at::stack(groups);
}

std::vector<double> residual_shares(const at::Tensor& covariance, const at::Tensor& positions) {
  at::Tensor left = covariance.to(at::kDouble);
  const double all = total_variance(left).item<double>(),
               least = kNoVariance * largest_variance(left);
  std::vector<double> shares = {all / all};
  for (const int64_t j : listed(positions)) {
    if (left[j][j].item<double>() > least) left = without(left, j);
    shares.push_back(std::max(0.0, total_variance(left).item<double>() / all));
  }
  return shares;
}

std::vector<double> residual_floor(const at::Tensor& eigenvalues) {
  const at::Tensor falling = eigenvalues.to(at::kDouble).contiguous();
  const int64_t n = falling.numel();
  std::vector<double> shares(n + 1, 0.0);
  for (int64_t i = n; i-- > 0;)
    shares[i] = shares[i + 1] + std::max(0.0, falling.const_data_ptr<double>()[i]);
  const double all = shares.front();
  for (double& share : shares) share /= all;
  return shares;
}

ScoreReconstruction fit_reconstruction(const std::vector<ScoreMoments>& parts,
                                       const at::Tensor& positions) {
  HEDGEROW_CHECK(!parts.empty(), "reconstruction: needs moments of scores; got none");
  const ScoreMoments all = merged(parts);
  std::vector<ScoreMoments> others;  // of each part: what it is predicted from
  for (size_t held = 0; held < parts.size(); ++held) {
    std::vector<ScoreMoments> rest = parts;
    if (parts.size() > 1) rest.erase(rest.begin() + static_cast<int64_t>(held));
    others.push_back(merged(rest));
  }
  const int64_t rows = all.rows();
  HEDGEROW_CHECK(rows > positions.size(-1), "reconstruction: needs more rows of scores than ",
                 positions.size(-1), " positions; got ", rows);
  ScoreReconstruction best;
  best.mean = all.mean;
  for (const double ridge : kRidges) {
    at::Tensor errors, totals;
    for (size_t held = 0; held < parts.size(); ++held) {
      const ScoreMoments& rest = others[held];
      const auto [error, total] = squared_errors(
          parts[held], rest.mean, least_squares(rest.covariance(), positions, ridge), positions);
      errors = errors.defined() ? errors + error : error;
      totals = totals.defined() ? totals + total : total;
    }
    at::Tensor left = errors / totals;
    if (parts.size() == 1) left.fill_(std::numeric_limits<double>::quiet_NaN());
    const at::Tensor matrix = least_squares(all.covariance(), positions, ridge);
    if (!best.left.defined()) {
      best.left = left;
      best.matrix = matrix;
      best.ridge = at::full_like(left, ridge);
      if (parts.size() == 1) break;
      continue;
    }
    const at::Tensor better = left < best.left;
    best.matrix = at::where(better.unsqueeze(-1).unsqueeze(-1), matrix, best.matrix);
    best.ridge = at::where(better, ridge, best.ridge);
    best.left = at::where(better, left, best.left);
  }
  return best;
}

}  // namespace hedgerow::nn
