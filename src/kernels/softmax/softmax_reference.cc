#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/counter_rng.h"
#include "hedgerow/kernels/softmax.h"
#include "kernels/common/elements.h"
#include "kernels/softmax/reference_sums.h"
#include "kernels/softmax/softmax_internal.h"

namespace hedgerow::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// One query row: weights before dropout, the factor of dropout, the log-sum-exp.
struct Row {
  std::vector<bool> visible;    // [S]
  std::vector<double> weight;   // [S], 0 where not visible
  std::vector<double> dropout;  // [S], 0 or 1 / (1 - p)
  double lse = -kInf;
};

Row attend(const SoftmaxParams& p, int64_t b, int64_t h, int64_t t) {
  const int64_t g = h / (p.heads / p.kv_heads);
  Row row{std::vector<bool>(p.keys), std::vector<double>(p.keys), std::vector<double>(p.keys, 1.0)};
  double max = -kInf;
  for (int64_t s = 0; s < causal_keys(p, t); s++) {
    const double mask = mask_value(p.mask, b, h, t, s);
    row.visible[s] = mask != -kInf;
    if (!row.visible[s]) continue;
    double dot = 0;
    for (int64_t d = 0; d < p.width; d++) {
      dot += load_element(p.dtype, p.q.data, row_index(p.q, b, h, t) + d) *
             load_element(p.dtype, p.k.data, row_index(p.k, b, g, s) + d);
    }
    row.weight[s] = p.scale * dot + mask;
    max = std::max(max, row.weight[s]);
  }
  double sum = 0;
  for (int64_t s = 0; s < p.keys; s++) {
    if (row.visible[s]) sum += row.weight[s] = std::exp(row.weight[s] - max);
  }
  const uint64_t key = dropout_row_key(p.dropout_seed, b, h, t);
  for (int64_t s = 0; s < p.keys; s++) {
    if (row.visible[s]) row.weight[s] /= sum;
    if (p.dropout_p > 0) {
      const bool keep = dropout_bits(key, s) >= dropout_threshold(p.dropout_p);
      row.dropout[s] = keep ? 1.0 / (1.0 - p.dropout_p) : 0.0;
    }
  }
  if (sum > 0) row.lse = max + std::log(sum);
  return row;
}

}  // namespace

void softmax_attention_forward_reference(const SoftmaxParams& p, const MutTensor& out, float* lse) {
  for (int64_t b = 0; b < p.batch; b++) {
    for (int64_t h = 0; h < p.heads; h++) {
      const int64_t g = h / (p.heads / p.kv_heads);
      for (int64_t t = 0; t < p.queries; t++) {
        const Row row = attend(p, b, h, t);
        std::vector<double> y(p.value_width);
        for (int64_t s = 0; s < p.keys; s++) {
          const double w = row.weight[s] * row.dropout[s];
          if (!row.visible[s] || row.dropout[s] == 0) continue;
          for (int64_t d = 0; d < p.value_width; d++) {
            y[d] += w * load_element(p.dtype, p.v.data, row_index(p.v, b, g, s) + d);
          }
        }
        for (int64_t d = 0; d < p.value_width; d++) {
          store_element(p.dtype, out.data, row_index(out, b, h, t) + d, y[d]);
        }
        if (lse) lse[(b * p.heads + h) * p.queries + t] = static_cast<float>(row.lse);
      }
    }
  }
}

// dP = dropout * (go . v), dS = w * (dP - sum_s w dP); dq = scale dS k, dk = scale dS^T q,
// dv = (dropout w)^T go, dmask = dS.
void softmax_attention_backward_reference(const SoftmaxParams& p, const SoftmaxGradients& grad) {
  MaskSum dmask(p, grad.dmask);
  const int64_t group = p.kv_heads == 0 ? 1 : p.heads / p.kv_heads;
  const auto at = [&](const ConstTensor& x, int64_t b, int64_t h, int64_t r, int64_t d) {
    return load_element(p.dtype, x.data, row_index(x, b, h, r) + d);
  };
  for (int64_t b = 0; b < p.batch; b++) {
    for (int64_t g = 0; g < p.kv_heads; g++) {
      HeadSum dk(p.keys, p.width), dv(p.keys, p.value_width);
      for (int64_t h = g * group; h < (g + 1) * group; h++) {
        HeadSum dq(p.queries, p.width);
        for (int64_t t = 0; t < p.queries; t++) {
          const Row row = attend(p, b, h, t);
          std::vector<double> dp(p.keys);
          double delta = 0;
          for (int64_t s = 0; s < p.keys; s++) {
            if (!row.visible[s]) continue;
            for (int64_t d = 0; d < p.value_width && row.dropout[s] != 0; d++) {
              const double go = at(grad.grad_out, b, h, t, d);
              dp[s] += row.dropout[s] * go * at(p.v, b, g, s, d);
              dv.sum[s * p.value_width + d] += row.dropout[s] * row.weight[s] * go;
            }
            delta += row.weight[s] * dp[s];
          }
          for (int64_t s = 0; s < p.keys; s++) {
            if (!row.visible[s]) continue;
            const double ds = row.weight[s] * (dp[s] - delta);
            dmask.add(b, h, t, s, ds);
            for (int64_t d = 0; d < p.width; d++) {
              dq.sum[t * p.width + d] += p.scale * ds * at(p.k, b, g, s, d);
              dk.sum[s * p.width + d] += p.scale * ds * at(p.q, b, h, t, d);
            }
          }
        }
        dq.store(p.dtype, grad.dq, b, h);
      }
      dk.store(p.dtype, grad.dk, b, g);
      dv.store(p.dtype, grad.dv, b, g);
    }
  }
  dmask.store();
}

}  // namespace hedgerow::kernels
