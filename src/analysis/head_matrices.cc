#include "analysis/head_matrices.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace hedgerow::analysis {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

double effective_rank(const at::Tensor& matrix) {
  if (!matrix.isfinite().all().item<bool>()) return kNaN;  // has no singular values
  const at::Tensor sizes = at::linalg_svdvals(matrix.to(at::kDouble));
  const double sum = sizes.sum().item<double>();
  if (sum == 0) return 0;
  const at::Tensor p = sizes / sum;
  return std::exp(-at::xlogy(p, p).sum().item<double>());
}

double identity_distance(const at::Tensor& matrix) {
  const int64_t n = matrix.size(0);
  if (matrix.size(1) != n) return kNaN;
  const at::Tensor change = matrix.to(at::kDouble) - at::eye(n, at::kDouble);
  return change.norm().item<double>() / std::sqrt(static_cast<double>(n));
}

std::map<std::string, HeadMatrices> head_matrices(models::Encoder& model) {
  std::map<std::string, HeadMatrices> out;
  const auto num_layers = static_cast<size_t>(model.num_layers());
  for (size_t layer = 0; layer < num_layers; ++layer) {
    const nn::Mixer& mixer = model.attention(static_cast<int64_t>(layer)).mixer();
    for (const auto& [name, values] : mixer.head_matrices()) {
      HeadMatrices& matrices = out[name];
      matrices.values.resize(num_layers);
      matrices.effective_rank.resize(num_layers, kNaN);
      matrices.identity_distance.resize(num_layers, kNaN);
      matrices.values[layer] = values.detach().to(at::kDouble).contiguous();
      matrices.effective_rank[layer] = effective_rank(values);
      matrices.identity_distance[layer] = identity_distance(values);
    }
  }
  return out;
}

}  // namespace hedgerow::analysis
