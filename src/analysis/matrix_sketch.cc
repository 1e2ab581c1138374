#include "analysis/matrix_sketch.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <limits>

#include "hedgerow/error.h"

namespace hedgerow::analysis {

MatrixSketch MatrixSketch::make(int64_t dim, int64_t rank, uint64_t seed) {
  HEDGEROW_CHECK(rank >= 1 && rank <= dim, "sketch: the rank must be in [1, ", dim, "]; got ",
                 rank);
  MatrixSketch sketch;
  const at::Tensor normal =
      at::randn({dim, rank}, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble);
  sketch.directions = std::get<0>(at::linalg_qr(normal)).contiguous();
  sketch.products = at::zeros({dim, rank}, at::kDouble);
  sketch.sum = at::zeros({dim}, at::kDouble);
  return sketch;
}

void MatrixSketch::add(const at::Tensor& samples) {
  const at::Tensor x = samples.to(at::kDouble);
  products.addmm_(x.t(), x.matmul(directions));
  sum.add_(x.sum(0));
  squares += x.square().sum().item<double>();
  count += x.size(0);
}

MatrixSketch::Components MatrixSketch::components() const {
  HEDGEROW_CHECK(count > 0, "sketch: components need samples; got none");
  const double n = static_cast<double>(count);
  const at::Tensor mean = sum / n;
  Components out;
  out.total = std::max(0.0, squares / n - mean.square().sum().item<double>());
  at::Tensor y =
      products / n - at::outer(mean, mean.matmul(directions));  // covariance . directions
  // A small shift keeps the core matrix positive definite; the eigenvalues give it back.
  const double shift =
      std::numeric_limits<double>::epsilon() * std::max(at::linalg_norm(y).item<double>(), 1e-300);
  y = y + shift * directions;
  const at::Tensor core = directions.t().matmul(y);
  const auto [values, vectors] = at::linalg_eigh((core + core.t()) / 2);
  // y core^(-1/2), without what rounding alone put there
  const double least = values.max().item<double>() * 1e-14;
  const at::Tensor roots = at::where(values > least, values.clamp_min(1e-300).rsqrt(), 0);
  const auto [u, s, vt] = at::linalg_svd(y.matmul(vectors * roots), /*full_matrices=*/false);
  out.eigenvalues = (s.square() - shift).clamp_min(0);
  out.vectors = u;
  return out;
}

SketchSelection select_coordinates(const MatrixSketch::Components& components, int64_t count) {
  // E = f f^T; a chosen coordinate j takes f_j's direction out of every row of f.
  at::Tensor f = components.vectors * components.eigenvalues.sqrt();  // [d,r]
  const double total = components.total;
  const double beyond = std::max(0.0, total - components.eigenvalues.sum().item<double>());
  const double least = 1e-12 * f.square().sum(1).max().item<double>();
  SketchSelection out;
  out.left.push_back(total / total);
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor variance = f.square().sum(1);                               // [d]
    const at::Tensor gain = f.matmul(f.t().matmul(f)).mul(f).sum(1) / variance;  // |E_j|^2 / E_jj
    const at::Tensor usable = variance > least;
    if (!usable.any().item<bool>()) break;
    const int64_t j = at::where(usable, gain, -1).argmax().item<int64_t>();
    const at::Tensor direction = f[j] / f[j].norm();
    f = f - at::outer(f.matmul(direction), direction);
    out.coordinates.push_back(j);
    out.left.push_back((f.square().sum().item<double>() + beyond) / total);
  }
  return out;
}

}  // namespace hedgerow::analysis
