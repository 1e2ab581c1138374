// entmax of the k largest entries of long rows.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hedgerow/kernels/entmax.h"
#include "kernels/common/elements.h"
#include "kernels/entmax/rows_internal.h"
#include "kernels/entmax/rows_io.h"

namespace hedgerow::kernels {
namespace {

using entmax::Block;
using entmax::kBlock;
using entmax::RowOffsets;
using entmax::RowReader;
using entmax::RowScratch;

// Fills scratch.order with the entries to keep, from the largest down, ties by position, and p with
// their weights; returns whether they are the whole support.
bool largest_entries(const float* z, int64_t n, int64_t k, double alpha, float* p,
                     RowScratch& scratch) {
  std::vector<int64_t>& order = scratch.order;
  const auto before = [z](int64_t a, int64_t b) { return z[a] > z[b] || (z[a] == z[b] && a < b); };
  entmax::forward_row(z, n, alpha, p, scratch);
  order.clear();
  for (int64_t i = 0; i < n; i++) {
    if (p[i] > 0) order.push_back(i);
  }
  const int64_t support = static_cast<int64_t>(order.size());
  if (support > k) {
    std::nth_element(order.begin(), order.begin() + k, order.end(), before);
    order.resize(k);
  }
  std::sort(order.begin(), order.end(), before);
  const int64_t kept = static_cast<int64_t>(order.size());
  float* top = reserve(scratch.in2, kept);
  for (int64_t i = 0; i < kept; i++) top[i] = support > k ? z[order[i]] : p[order[i]];
  if (support > k) {
    entmax::forward_row(top, k, alpha, p, scratch);
  } else {
    std::copy(top, top + kept, p);
  }
  return support <= k;
}

}  // namespace

void entmax_topk_forward(const EntmaxRows& rows, const ConstRows& x, const RowMask& mask,
                         const EntmaxTopK& out) {
  if (rows.dtype == DType::kFloat64) return entmax_topk_forward_reference(rows, x, mask, out);
  entmax::check_alphas(rows);
  HEDGEROW_CHECK(out.k >= 1, "entmax_topk: k must be at least 1; got ", out.k);
  if (rows.length == 0) return entmax_topk_forward_reference(rows, x, mask, out);
  const RowReader reader(rows, x, mask);
  const RowOffsets alpha_at(rows, rows.alpha_strides, 0);
  entmax::for_blocks(rows, x.step, [&](const Block& block, RowScratch& scratch) {
    const float* z[kBlock];
    reader.read(block, scratch.in, z);
    for (int64_t j = 0; j < block.count; j++) {
      const int64_t r = block.first + j;
      float* p = reserve(scratch.out, rows.length);
      out.complete[r] =
          largest_entries(z[j], rows.length, out.k, rows.alpha[alpha_at(r)], p, scratch);
      for (int64_t i = 0; i < out.k; i++) {
        const bool kept = i < static_cast<int64_t>(scratch.order.size()) && p[i] > 0;
        store_element(rows.dtype, out.values, r * out.k + i, kept ? p[i] : 0.0);
        out.indices[r * out.k + i] = kept ? scratch.order[i] : -1;
      }
    }
  });
}

}  // namespace hedgerow::kernels
