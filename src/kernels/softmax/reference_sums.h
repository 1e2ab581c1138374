// Gradients that references sum in double before they are written.
#pragma once

#include <cstdint>
#include <vector>

#include "hedgerow/kernels/softmax.h"
#include "kernels/common/elements.h"

namespace hedgerow::kernels {

// Accumulates gradients of one [rows, width] head in double.
struct HeadSum {
  int64_t width;
  std::vector<double> sum;
  HeadSum(int64_t rows, int64_t width) : width(width), sum(rows * width) {}
  void store(DType dtype, const MutTensor& t, int64_t b, int64_t h) const {
    for (int64_t i = 0; i < static_cast<int64_t>(sum.size()); i++) {
      store_element(dtype, t.data, row_index(t, b, h, i / width) + i % width, sum[i]);
    }
  }
};

// Gradient of the mask, in double until it is written.
class MaskSum {
 public:
  MaskSum(const SoftmaxParams& p, const MaskGradient& g) : g_(g), kind_(p.mask.kind) {
    if (g.data == nullptr) return;
    size_[0] = g.batch_stride ? p.batch : 1;
    size_[1] = g.head_stride ? p.heads : 1;
    size_[2] = g.query_stride ? p.queries : 1;
    size_[3] = g.key_stride ? p.keys : 1;
    sum_.resize(size_[0] * size_[1] * size_[2] * size_[3]);
  }
  void add(int64_t b, int64_t h, int64_t t, int64_t s, double x) {
    if (g_.data == nullptr) return;
    const int64_t i[4] = {b, h, t, s};
    int64_t at = 0;
    for (int n = 0; n < 4; n++) at = at * size_[n] + (size_[n] == 1 ? 0 : i[n]);
    sum_[at] += x;
  }
  void store() const {
    const DType dtype = kind_ == MaskKind::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    for (int64_t i = 0; i < static_cast<int64_t>(sum_.size()); i++) {
      const int64_t s = i % size_[3], t = i / size_[3] % size_[2];
      const int64_t h = i / size_[3] / size_[2] % size_[1], b = i / size_[3] / size_[2] / size_[1];
      store_element(
          dtype, g_.data,
          b * g_.batch_stride + h * g_.head_stride + t * g_.query_stride + s * g_.key_stride,
          sum_[i]);
    }
  }

 private:
  MaskGradient g_;
  MaskKind kind_;
  int64_t size_[4] = {};
  std::vector<double> sum_;
};

}  // namespace hedgerow::kernels
