// Elements of any DType as double: for references, which are written to be read, not to be fast.
#pragma once

#include <cstdint>
#include <vector>

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

inline const void* row_pointer(DType dtype, const ConstTensor& x, int64_t b, int64_t h, int64_t r) {
  return static_cast<const char*>(x.data) + row_index(x, b, h, r) * element_bytes(dtype);
}
inline void* row_pointer(DType dtype, const MutTensor& x, int64_t b, int64_t h, int64_t r) {
  return static_cast<char*>(x.data) + row_index(x, b, h, r) * element_bytes(dtype);
}

// [rows][width] of one head; rows that are not kept stay 0 and are not read.
inline std::vector<double> load_rows(DType dtype, const ConstTensor& x, int64_t b, int64_t h,
                                     int64_t rows, int64_t width,
                                     const std::vector<char>& keep = {}) {
  std::vector<double> out(rows * width);
  for (int64_t r = 0; r < rows; r++) {
    if (!keep.empty() && !keep[r]) continue;
    const int64_t at = row_index(x, b, h, r);
    for (int64_t i = 0; i < width; i++) out[r * width + i] = load_element(dtype, x.data, at + i);
  }
  return out;
}

inline void store_rows(DType dtype, const std::vector<double>& x, const MutTensor& out, int64_t b,
                       int64_t h, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; r++) {
    const int64_t at = row_index(out, b, h, r);
    for (int64_t i = 0; i < width; i++) store_element(dtype, out.data, at + i, x[r * width + i]);
  }
}

// Block `index` of `size` elements of a contiguous array; null gives zeros.
inline std::vector<double> load_block(DType dtype, const void* data, int64_t index, int64_t size) {
  std::vector<double> out(size);
  for (int64_t i = 0; data && i < size; i++) out[i] = load_element(dtype, data, index * size + i);
  return out;
}

// Nothing where data is null.
inline void store_block(DType dtype, const std::vector<double>& x, void* data, int64_t index) {
  const int64_t size = static_cast<int64_t>(x.size());
  for (int64_t i = 0; data && i < size; i++) store_element(dtype, data, index * size + i, x[i]);
}

}  // namespace hedgerow::kernels
