#include "kernels/common/elements.h"
#include "kernels/selected_scores/selected_scores_internal.h"

namespace hedgerow::kernels {
namespace {

DType scores_dtype(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

}  // namespace

void selected_scores_forward_reference(const SelectedScoresParams& p, void* scores) {
  const int64_t D = p.width;
  for (int64_t bh = 0; bh < p.batch * p.heads; bh++) {
    const int64_t b = bh / p.heads, h = bh % p.heads, g = h / (p.heads / p.kv_heads);
    const std::vector<double> q = load_rows(p.dtype, p.q, b, h, p.queries, D),
                              k = load_rows(p.dtype, p.k, b, g, p.keys, D);
    for (int64_t t = 0; t < p.queries; t++) {
      for (int64_t i = 0; i < p.selected; i++) {
        const int64_t s = positions_of(p, h, t)[i];
        double sum = 0;
        for (int64_t d = 0; d < D; d++) sum += q[t * D + d] * k[s * D + d];
        store_element(scores_dtype(p.dtype), scores, (bh * p.queries + t) * p.selected + i, sum);
      }
    }
  }
}

void selected_scores_backward_reference(const SelectedScoresParams& p, const void* grad,
                                        const MutTensor& dq, const MutTensor& dk) {
  const int64_t D = p.width, group = p.kv_heads == 0 ? 0 : p.heads / p.kv_heads;
  for (int64_t bg = 0; bg < p.batch * p.kv_heads; bg++) {
    const int64_t b = bg / p.kv_heads, g = bg % p.kv_heads;
    const std::vector<double> k = load_rows(p.dtype, p.k, b, g, p.keys, D);
    std::vector<double> dk_rows(p.keys * D);
    for (int64_t h = g * group; h < (g + 1) * group; h++) {
      const std::vector<double> q = load_rows(p.dtype, p.q, b, h, p.queries, D);
      std::vector<double> dq_rows(p.queries * D);
      for (int64_t t = 0; t < p.queries; t++) {
        for (int64_t i = 0; i < p.selected; i++) {
          const int64_t s = positions_of(p, h, t)[i];
          const int64_t at = ((b * p.heads + h) * p.queries + t) * p.selected + i;
          const double x = load_element(scores_dtype(p.dtype), grad, at);
          for (int64_t d = 0; d < D; d++) {
            dq_rows[t * D + d] += x * k[s * D + d];
            dk_rows[s * D + d] += x * q[t * D + d];
          }
        }
      }
      store_rows(p.dtype, dq_rows, dq, b, h, p.queries, D);
    }
    store_rows(p.dtype, dk_rows, dk, b, g, p.keys, D);
  }
}

}  // namespace hedgerow::kernels
