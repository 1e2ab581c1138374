// Principal components of attention scores (arXiv 2106.08823): how few dimensions hold how much of
// their variance, and how far layers and models share them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hedgerow::analysis {

struct Spectrum {
  at::Tensor eigenvalues;  // [n], falling, at least 0
  at::Tensor vectors;      // [n,n]: column i belongs to eigenvalue i
};

// Of a covariance [n,n], in float64.
Spectrum spectrum(const at::Tensor& covariance);

// The fewest leading components that hold `share` of the variance; 0 without variance.
int64_t components_for(const at::Tensor& eigenvalues, double share);

// |U_a^T U_b|_F^2 / k of the k leading components: 1 for equal spaces, k / n by chance. Throws
// Error unless both have the same n, and k is in [1,n].
double overlap(const Spectrum& a, const Spectrum& b, int64_t k);

// Share of the variance of `covariance` that the k leading components of `other` hold; NaN without
// variance.
double explained(const at::Tensor& covariance, const Spectrum& other, int64_t k);

}  // namespace hedgerow::analysis
