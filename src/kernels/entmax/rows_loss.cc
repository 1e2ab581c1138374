// The Fenchel-Young loss of the row transform.
#include <algorithm>
#include <cmath>
#include <limits>

#include "hedgerow/kernels/entmax.h"
#include "kernels/entmax/entmax_math.h"
#include "kernels/entmax/rows_internal.h"
#include "kernels/entmax/rows_io.h"

namespace hedgerow::kernels {
namespace {

using entmax::Block;
using entmax::kBlock;
using entmax::num_rows;
using entmax::RowOffsets;
using entmax::RowReader;
using entmax::RowScratch;
using entmax::RowWriter;
using entmax::Threshold;

// Loss of one row from its weights; everything relative to lambda, so that large scores cancel.
double row_loss(const Threshold<double>& row, const float* z, const float* p, int64_t n,
                int64_t target) {
  double mean = 0;
  for (int64_t i = 0; i < n && row.e > 0; i++) {
    if (p[i] > 0) mean += p[i] * row.above_lambda(z[i]);
  }
  return std::max(0.0, row.e / (1 + row.e) * mean - row.above_lambda(z[target]));
}

double row_dalpha(double e, const float* p, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    if (p[i] > 0) sum += entmax::entropy_term<double>(p[i], e).dalpha;
  }
  return sum;
}

}  // namespace

void entmax_loss(const EntmaxRows& rows, const ConstRows& x, const RowMask& mask,
                 const EntmaxLoss& out) {
  if (rows.dtype == DType::kFloat64 || rows.length == 0) {
    return entmax_loss_reference(rows, x, mask, out);
  }
  entmax::check_alphas(rows);
  entmax::check_targets(rows, out);
  const RowReader reader(rows, x, mask);
  const RowWriter writer(rows, out.dx);
  const RowOffsets alpha_at(rows, rows.alpha_strides, 0);
  const int64_t n = rows.length;
  entmax::for_blocks(rows, x.step, [&](const Block& block, RowScratch& scratch) {
    const float* z[kBlock];
    float* dx[kBlock];
    reader.read(block, scratch.in, z);
    writer.begin(block, scratch.out, dx);
    for (int64_t j = 0; j < block.count; j++) {
      const int64_t r = block.first + j, y = out.target[r];
      float* p = dx[j] ? dx[j] : reserve(scratch.out, n);
      out.loss[r] = 0;
      if (out.dalpha) out.dalpha[r] = 0;
      if (y == out.ignore_index) {
        std::fill(p, p + n, 0.0f);
        continue;
      }
      const Threshold<double> row =
          entmax::forward_row(z[j], n, rows.alpha[alpha_at(r)], p, scratch);
      if (row.max == -Threshold<double>::kInf) continue;
      out.loss[r] = row_loss(row, z[j], p, n, y);
      if (out.dalpha) out.dalpha[r] = row_dalpha(row.e, p, n);
      if (z[j][y] != -Threshold<double>::kInf) p[y] -= 1.0f;
    }
    writer.end(block, dx);
  });
}

}  // namespace hedgerow::kernels
