// Shared by the softmax kernels and their reference: what a mask means.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "hedgerow/kernels/softmax.h"

namespace hedgerow::kernels {

// Mask value of (b, h, t, s) as an addend: 0 = keep, -inf = excluded.
inline double mask_value(const Mask& mask, int64_t b, int64_t h, int64_t t, int64_t s) {
  if (mask.kind == MaskKind::kNone) return 0.0;
  const int64_t i = b * mask.batch_stride + h * mask.head_stride + t * mask.query_stride +
                    s * mask.key_stride;
  if (mask.kind == MaskKind::kBool) {
    return static_cast<const uint8_t*>(mask.data)[i] ? 0.0
                                                     : -std::numeric_limits<double>::infinity();
  }
  if (mask.kind == MaskKind::kFloat32) return static_cast<const float*>(mask.data)[i];
  return static_cast<const double*>(mask.data)[i];
}

// Keys [0, n) that is_causal leaves to query t; all of them without it.
inline int64_t causal_keys(const SoftmaxParams& p, int64_t t) {
  if (!p.is_causal) return p.keys;
  const int64_t n = t + 1 + p.keys - p.queries;
  return n < 0 ? 0 : n > p.keys ? p.keys : n;
}

}  // namespace hedgerow::kernels
