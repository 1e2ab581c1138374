#include "analysis/spectra.h"

#include <ATen/ATen.h>

#include "hedgerow/error.h"

namespace hedgerow::analysis {
namespace {

at::Tensor leading(const Spectrum& spectrum, int64_t k) {
  const int64_t n = spectrum.eigenvalues.size(0);
  HEDGEROW_CHECK(k >= 1 && k <= n, "spectra: k must be in [1, ", n, "]; got ", k);
  return spectrum.vectors.narrow(1, 0, k);
}

void check_same(int64_t a, int64_t b) {
  HEDGEROW_CHECK(a == b, "spectra: rows of scores must have the same length; got ", a, " and ", b);
}

}  // namespace

Spectrum spectrum(const at::Tensor& covariance) {
  const auto [values, vectors] = at::linalg_eigh(covariance.to(at::kDouble));
  return {values.flip(0).clamp_min(0), vectors.flip(1)};
}

int64_t components_for(const at::Tensor& eigenvalues, double share) {
  const double wanted = share * eigenvalues.sum().item<double>();
  if (wanted <= 0) return 0;
  // sums may miss the whole by rounding
  const int64_t less = eigenvalues.cumsum(0).lt(wanted * (1 - 1e-12)).sum().item<int64_t>();
  return less + 1;
}

double overlap(const Spectrum& a, const Spectrum& b, int64_t k) {
  check_same(a.vectors.size(0), b.vectors.size(0));
  return leading(a, k).t().matmul(leading(b, k)).square().sum().item<double>() /
         static_cast<double>(k);
}

double explained(const at::Tensor& covariance, const Spectrum& other, int64_t k) {
  check_same(covariance.size(0), other.vectors.size(0));
  const at::Tensor c = covariance.to(at::kDouble), u = leading(other, k);
  return (c.matmul(u).mul(u).sum() / c.diagonal().sum()).item<double>();
}

}  // namespace hedgerow::analysis
