// Policy of the row transform: which rows go where. No vector code here.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "hedgerow/kernels/entmax.h"
#include "kernels/entmax/rows_internal.h"
#include "kernels/entmax/rows_io.h"

namespace hedgerow::kernels {

namespace entmax {

Threshold<double> forward_row_double(const float* z, int64_t n, double alpha, float* p,
                                     RowScratch& scratch) {
  const double e = alpha - 1;
  double max = -Threshold<double>::kInf;
  for (int64_t i = 0; i < n; i++) max = std::max<double>(max, z[i]);
  scratch.values.clear();
  for (int64_t i = 0; i < n; i++) {
    if (e * difference<double>(z[i], max) > -1) scratch.values.push_back(z[i]);
  }
  const Threshold<double> row =
      solve(scratch.values.data(), static_cast<int64_t>(scratch.values.size()), e, scratch.sorted);
  for (int64_t i = 0; i < n; i++) p[i] = static_cast<float>(row.weight(z[i]));
  return row;
}

}  // namespace entmax

using entmax::Block;
using entmax::kBlock;
using entmax::num_rows;
using entmax::RowOffsets;
using entmax::RowReader;
using entmax::RowScratch;
using entmax::RowWriter;

void entmax_forward(const EntmaxRows& rows, const ConstRows& x, const RowMask& mask,
                    const MutRows& p) {
  if (rows.dtype == DType::kFloat64) return entmax_forward_reference(rows, x, mask, p);
  entmax::check_alphas(rows);
  const RowReader reader(rows, x, mask);
  const RowWriter writer(rows, p);
  const RowOffsets alpha_at(rows, rows.alpha_strides, 0);
  entmax::for_blocks(rows, x.step, [&](const Block& block, RowScratch& scratch) {
    const float* z[kBlock];
    float* weights[kBlock];
    reader.read(block, scratch.in, z);
    writer.begin(block, scratch.out, weights);
    for (int64_t j = 0; j < block.count; j++) {
      entmax::forward_row(z[j], rows.length, rows.alpha[alpha_at(block.first + j)], weights[j],
                          scratch);
    }
    writer.end(block, weights);
  });
}

void entmax_backward(const EntmaxRows& rows, const ConstRows& p, const ConstRows& grad_p,
                     const MutRows& dx, double* grad_alpha) {
  if (rows.dtype == DType::kFloat64) {
    return entmax_backward_reference(rows, p, grad_p, dx, grad_alpha);
  }
  entmax::check_alphas(rows);
  const RowReader weights_reader(rows, p), grad_reader(rows, grad_p);
  const RowWriter writer(rows, dx);
  const RowOffsets alpha_at(rows, rows.alpha_strides, 0);
  std::vector<double> dalpha(grad_alpha ? num_rows(rows) : 0);
  entmax::for_blocks(rows, p.step, [&](const Block& block, RowScratch& scratch) {
    const float *weights[kBlock], *grad[kBlock];
    float* dz[kBlock];
    weights_reader.read(block, scratch.in, weights);
    grad_reader.read(block, scratch.in2, grad);
    writer.begin(block, scratch.out, dz);
    for (int64_t j = 0; j < block.count; j++) {
      const int64_t r = block.first + j;
      const double row = entmax::backward_row(weights[j], grad[j], rows.length,
                                              rows.alpha[alpha_at(r)], dz[j], grad_alpha, scratch);
      if (grad_alpha) dalpha[r] = row;
    }
    writer.end(block, dz);
  });
  if (!grad_alpha) return;
  std::fill(grad_alpha, grad_alpha + rows.num_alphas, 0.0);
  for (int64_t r = 0; r < num_rows(rows); r++) grad_alpha[alpha_at(r)] += dalpha[r];
}

}  // namespace hedgerow::kernels
