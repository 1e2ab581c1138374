// alpha-entmax from ATen operators, as people write it today: what the fused kernels are compared
// with. Whole tensors of scores, gradients by the analytic formulas.
#pragma once

#include <ATen/core/Tensor.h>

namespace hedgerow::bench {

// alpha = 1.5 along the last dimension: exact, from the largest entries (a top-k that doubles until
// it holds every support; the full sort is several times slower). Peters et al., 1905.05702.
at::Tensor eager_entmax15(const at::Tensor& x);

// Any alpha > 1, broadcastable to x with size 1 on the last dimension, by 50 bisections, with the
// gradient of alpha. Correia et al., 1909.00015.
at::Tensor eager_entmax_bisect(const at::Tensor& x, const at::Tensor& alpha);

}  // namespace hedgerow::bench
