// Elements of any DType as double: for references, which are written to be read, not to be fast.
#pragma once

#include <cstdint>

#include "hedgerow/kernels/types.h"
#include "kernels/common/bfloat16.h"

namespace hedgerow::kernels {

inline double load_element(DType dtype, const void* data, int64_t i) {
  if (dtype == DType::kFloat64) return static_cast<const double*>(data)[i];
  if (dtype == DType::kFloat32) return static_cast<const float*>(data)[i];
  return bfloat16_value(static_cast<const uint16_t*>(data)[i]);
}

inline void store_element(DType dtype, void* data, int64_t i, double x) {
  if (dtype == DType::kFloat64) {
    static_cast<double*>(data)[i] = x;
  } else if (dtype == DType::kFloat32) {
    static_cast<float*>(data)[i] = static_cast<float>(x);
  } else {
    static_cast<uint16_t*>(data)[i] = bfloat16_bits(static_cast<float>(x));
  }
}

// Index of [b, h, row, 0].
template <typename Tensor>
int64_t row_index(const Tensor& t, int64_t b, int64_t h, int64_t r) {
  return b * t.batch_stride + h * t.head_stride + r * t.row_stride;
}

}  // namespace hedgerow::kernels
