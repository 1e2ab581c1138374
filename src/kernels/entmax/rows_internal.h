// Shared by the row kernels and their reference: where rows lie, and what a worker keeps.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "hedgerow/kernels/entmax.h"
#include "kernels/entmax/entmax_math.h"

namespace hedgerow::kernels::entmax {

inline int64_t num_rows(const EntmaxRows& rows) {
  int64_t n = 1;
  for (const int64_t size : rows.sizes) n *= size;
  return n;
}

// Throws on a bad alpha.
void check_alphas(const EntmaxRows& rows);
// Throws on a target that is no entry and not ignored.
void check_targets(const EntmaxRows& rows, const EntmaxLoss& loss);

// Element at which row r of a tensor begins. Dimensions that lie one inside the other count as one.
class RowOffsets {
 public:
  // `default_stride` between consecutive rows where `strides` is empty.
  RowOffsets(const EntmaxRows& rows, const std::vector<int64_t>& strides, int64_t default_stride);
  int64_t operator()(int64_t r) const {
    int64_t offset = 0;
    for (size_t i = dims_.size(); i-- > 1;) {
      offset += r % dims_[i].size * dims_[i].stride;
      r /= dims_[i].size;
    }
    return offset + r * dims_[0].stride;
  }

 private:
  struct Dim {
    int64_t size, stride;
  };
  std::vector<Dim> dims_;  // at least one; the first one's size is not used
};

// What one worker keeps between rows.
struct RowScratch {
  AlignedBuffer<float> in, in2, out;  // rows of a block that do not lie as the kernels want them
  AlignedBuffer<float> list;          // candidates of a row, relative to its maximum
  AlignedBuffer<float> terms;         // alpha terms of the backward
  AlignedBuffer<int32_t> support;     // positions of a sparse row's support, and
  AlignedBuffer<float> packed;        // what the backward needs there
  std::vector<double> values, sorted, p, grad, dz;  // rows in double
  std::vector<int64_t> order;
};

// p of one row of float32 scores, -inf where excluded; the threshold it was made with. p may not be
// z. Any alpha.
Threshold<double> forward_row(const float* z, int64_t n, double alpha, float* p,
                              RowScratch& scratch);

// The same in double arithmetic and plain loops; the largest entry may be +inf.
Threshold<double> forward_row_double(const float* z, int64_t n, double alpha, float* p,
                                     RowScratch& scratch);

// dx of one row from p and g = grad_p; its part of the gradient for alpha, 0 unless wanted. Any
// alpha. dx may be neither p nor g, and nullptr.
double backward_row(const float* p, const float* g, int64_t n, double alpha, float* dx,
                    bool want_alpha, RowScratch& scratch);

}  // namespace hedgerow::kernels::entmax
