#include "nn/head_choice.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "hedgerow/error.h"

namespace hedgerow::nn {
namespace {

// Relative to the mean of the diagonal: heads that are equal up to rounding share a coefficient.
constexpr double kRidge = 1e-7;

at::Tensor index_of(const std::vector<int64_t>& heads) { return at::tensor(heads, at::kLong); }

// [k,H] least squares of every head in the kept ones.
at::Tensor solve(const at::Tensor& grams, const std::vector<int64_t>& kept) {
  const at::Tensor at = index_of(kept), heads = at::arange(grams.size(0));
  const at::Tensor diagonal = grams.diagonal(0, 1, 2).mean(-1).clamp_min(1e-300);  // [H]
  const at::Tensor among =
      grams.index_select(1, at).index_select(2, at) +
      kRidge * diagonal.view({-1, 1, 1}) * at::eye(at.size(0), grams.options());  // [H,k,k]
  const at::Tensor with = grams.index({heads, heads}).index_select(1, at);        // [H,k]
  return at::linalg_solve(among, with.unsqueeze(-1)).squeeze(-1).t().contiguous();
}

// Sum of the residuals of all heads.
double residual(const at::Tensor& grams, const std::vector<int64_t>& kept) {
  const at::Tensor heads = at::arange(grams.size(0));
  const at::Tensor with = grams.index({heads, heads});  // [H,H]
  const at::Tensor own = with.diagonal();
  const at::Tensor explained =
      (with.index_select(1, index_of(kept)) * solve(grams, kept).t()).sum(-1);
  return ((own - explained) / own.clamp_min(1e-300)).sum().item<double>();
}

void check_count(const at::Tensor& grams, int64_t count) {
  HEDGEROW_CHECK(count >= 1 && count <= grams.size(0), "heads: must be in [1, ", grams.size(0),
                 "]; got ", count);
}

}  // namespace

StandIns choose_stand_ins(const at::Tensor& grams, int64_t count) {
  check_count(grams, count);
  StandIns chosen;
  while (static_cast<int64_t>(chosen.kept.size()) < count) {
    double least = std::numeric_limits<double>::infinity();
    int64_t best = -1;
    for (int64_t h = 0; h < grams.size(0); ++h) {
      if (std::count(chosen.kept.begin(), chosen.kept.end(), h) > 0) continue;
      std::vector<int64_t> with = chosen.kept;
      with.push_back(h);
      const double left = residual(grams, with);
      if (left < least || best < 0) {
        least = left;
        best = h;
      }
    }
    chosen.kept.push_back(best);
  }
  std::sort(chosen.kept.begin(), chosen.kept.end());
  chosen.coefficients = solve(grams, chosen.kept);
  return chosen;
}

std::vector<int64_t> prune_heads(const at::Tensor& contributions, int64_t count) {
  check_count(contributions, count);
  std::vector<int64_t> kept(contributions.size(0)), gone;
  std::iota(kept.begin(), kept.end(), 0);
  while (static_cast<int64_t>(kept.size()) > count) {
    double least = std::numeric_limits<double>::infinity();
    size_t best = 0;
    for (size_t i = 0; i < kept.size(); ++i) {
      std::vector<int64_t> without = gone;
      without.push_back(kept[i]);
      const at::Tensor at = index_of(without);
      const double lost =
          contributions.index_select(0, at).index_select(1, at).sum().item<double>();
      if (lost < least) {
        least = lost;
        best = i;
      }
    }
    gone.push_back(kept[best]);
    kept.erase(kept.begin() + static_cast<int64_t>(best));
  }
  return kept;
}

}  // namespace hedgerow::nn
