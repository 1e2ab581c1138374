// The forward of the reference over any number type: double in the kernel, a type that counts its
// multiplications where a test holds a cost model against these loops.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/counter_rng.h"
#include "hedgerow/kernels/softmax.h"
#include "kernels/common/elements.h"
#include "kernels/softmax/softmax_internal.h"

namespace hedgerow::kernels {

// One query row: weights before dropout, the factor of dropout, the log-sum-exp.
template <typename Number>
struct ReferenceRow {
  std::vector<bool> visible;    // [S]
  std::vector<Number> weight;   // [S], 0 where not visible
  std::vector<double> dropout;  // [S], 0 or 1 / (1 - p)
  double lse = -std::numeric_limits<double>::infinity();
};

// q[b,h,t,:] . k[b,g,s,:], unscaled.
template <typename Number>
Number reference_product(const SoftmaxParams& p, int64_t b, int64_t h, int64_t t, int64_t s) {
  const int64_t g = h / (p.heads / p.kv_heads);
  Number dot(0.0);
  for (int64_t d = 0; d < p.width; d++) {
    dot += Number(load_element(p.dtype, p.q.data, row_index(p.q, b, h, t) + d)) *
           Number(load_element(p.dtype, p.k.data, row_index(p.k, b, g, s) + d));
  }
  return dot;
}

template <typename Number>
ReferenceRow<Number> reference_row(const SoftmaxParams& p, int64_t b, int64_t h, int64_t t) {
  using std::exp;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  ReferenceRow<Number> row{std::vector<bool>(p.keys), std::vector<Number>(p.keys, Number(0.0)),
                           std::vector<double>(p.keys, 1.0)};
  Number max(-kInf);
  for (int64_t s = 0; s < causal_keys(p, t); s++) {
    const double mask = mask_value(p.mask, b, h, t, s);
    row.visible[s] = mask != -kInf;
    if (!row.visible[s]) continue;
    row.weight[s] = p.scale * reference_product<Number>(p, b, h, t, s) + mask;
    max = std::max(max, row.weight[s]);
  }
  Number sum(0.0);
  for (int64_t s = 0; s < p.keys; s++) {
    if (row.visible[s]) sum += row.weight[s] = exp(row.weight[s] - max);
  }
  const uint64_t key = dropout_row_key(p.dropout_seed, b, h, t);
  for (int64_t s = 0; s < p.keys; s++) {
    if (row.visible[s]) row.weight[s] /= sum;
    if (p.dropout_p > 0) {
      const bool keep = dropout_bits(key, s) >= dropout_threshold(p.dropout_p);
      row.dropout[s] = keep ? 1.0 / (1.0 - p.dropout_p) : 0.0;
    }
  }
  const double total = static_cast<double>(sum);
  if (total > 0) row.lse = static_cast<double>(max) + std::log(total);
  return row;
}

// softmax_attention_forward_reference (hedgerow/kernels/softmax.h) in `Number`.
template <typename Number>
void reference_forward(const SoftmaxParams& p, const MutTensor& out, float* lse) {
  for (int64_t b = 0; b < p.batch; b++) {
    for (int64_t h = 0; h < p.heads; h++) {
      const int64_t g = h / (p.heads / p.kv_heads);
      for (int64_t t = 0; t < p.queries; t++) {
        const ReferenceRow<Number> row = reference_row<Number>(p, b, h, t);
        std::vector<Number> y(p.value_width, Number(0.0));
        for (int64_t s = 0; s < p.keys; s++) {
          if (!row.visible[s] || row.dropout[s] == 0) continue;
          const Number w = row.weight[s] * row.dropout[s];
          for (int64_t d = 0; d < p.value_width; d++) {
            y[d] += w * Number(load_element(p.dtype, p.v.data, row_index(p.v, b, g, s) + d));
          }
        }
        for (int64_t d = 0; d < p.value_width; d++) {
          store_element(p.dtype, out.data, row_index(out, b, h, t) + d, static_cast<double>(y[d]));
        }
        if (lse) lse[(b * p.heads + h) * p.queries + t] = static_cast<float>(row.lse);
      }
    }
  }
}

}  // namespace hedgerow::kernels
