#include <cmath>
#include <limits>
#include <vector>

#include "base/counter_rng.h"
#include "hedgerow/kernels/entmax_attention.h"
#include "kernels/common/elements.h"
#include "kernels/entmax/attention_internal.h"
#include "kernels/entmax/entmax_math.h"
#include "kernels/softmax/reference_sums.h"

namespace hedgerow::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// One query row: its support, ascending.
struct Row {
  std::vector<int64_t> keys;
  std::vector<double> weight;   // before dropout
  std::vector<double> dropout;  // 0 or 1 / (1 - p)
  entmax::Threshold<double> threshold;
};

Row attend(const EntmaxAttentionParams& p, int64_t b, int64_t h, int64_t t) {
  const int64_t g = h / group_size(p), n = causal_keys(p, t);
  std::vector<double> score(n, -kInf), weight(n);
  for (int64_t s = 0; s < n; s++) {
    const double mask = mask_value(p.mask, b, h, t, s);
    if (mask == -kInf) continue;
    double dot = 0;
    for (int64_t d = 0; d < p.width; d++) {
      dot += load_element(p.dtype, p.q.data, row_index(p.q, b, h, t) + d) *
             load_element(p.dtype, p.k.data, row_index(p.k, b, g, s) + d);
    }
    score[s] = p.scale * dot + mask;
  }
  Row row;
  row.threshold = entmax::row_forward(score.data(), n, alpha_of(p, h), weight.data());
  const uint64_t key = dropout_row_key(p.dropout_seed, b, h, t);
  for (int64_t s = 0; s < n; s++) {
    if (!(weight[s] > 0)) continue;
    row.keys.push_back(s);
    row.weight.push_back(weight[s]);
    const bool keep = p.dropout_p == 0 || dropout_bits(key, s) >= dropout_threshold(p.dropout_p);
    row.dropout.push_back(keep ? 1.0 / (1.0 - p.dropout_p) : 0.0);
  }
  return row;
}

}  // namespace

void entmax_attention_forward_reference(const EntmaxAttentionParams& p, const MutTensor& out,
                                        const EntmaxSupport* support) {
  std::vector<double> y(p.value_width);
  for (int64_t b = 0; b < p.batch; b++) {
    for (int64_t h = 0; h < p.heads; h++) {
      const int64_t g = h / group_size(p);
      for (int64_t t = 0; t < p.queries; t++) {
        const Row row = attend(p, b, h, t);
        const int64_t n = static_cast<int64_t>(row.keys.size());
        std::fill(y.begin(), y.end(), 0.0);
        for (int64_t i = 0; i < n; i++) {
          const double w = row.weight[i] * row.dropout[i];
          for (int64_t d = 0; d < p.value_width && w != 0; d++) {
            y[d] += w * load_element(p.dtype, p.v.data, row_index(p.v, b, g, row.keys[i]) + d);
          }
        }
        for (int64_t d = 0; d < p.value_width; d++) {
          store_element(p.dtype, out.data, row_index(out, b, h, t) + d, y[d]);
        }
        if (support == nullptr) continue;
        KeptRow(p, *support, b, h, t)
            .store(
                row.threshold, n, [&](int64_t i) { return row.keys[i]; },
                [&](int64_t i) { return row.weight[i]; });
      }
    }
  }
}

// dw = dropout * (go . v), dS and dalpha of the row from it; dq = scale dS k, dk = scale dS^T q,
// dv = (dropout w)^T go, dmask = dS.
void entmax_attention_backward_reference(const EntmaxAttentionParams& p,
                                         const EntmaxGradients& grad) {
  MaskSum dmask(p, grad.dmask);
  const auto at = [&](const ConstTensor& x, int64_t b, int64_t h, int64_t r, int64_t d) {
    return load_element(p.dtype, x.data, row_index(x, b, h, r) + d);
  };
  std::vector<double> dw, ds, dalpha(p.heads);
  for (int64_t b = 0; b < p.batch; b++) {
    for (int64_t g = 0; g < p.kv_heads; g++) {
      HeadSum dk(p.keys, p.width), dv(p.keys, p.value_width);
      for (int64_t h = g * group_size(p); h < (g + 1) * group_size(p); h++) {
        HeadSum dq(p.queries, p.width);
        for (int64_t t = 0; t < p.queries; t++) {
          const Row row = attend(p, b, h, t);
          const int64_t n = static_cast<int64_t>(row.keys.size());
          dw.assign(n, 0.0);
          ds.assign(n, 0.0);
          for (int64_t i = 0; i < n; i++) {
            for (int64_t d = 0; d < p.value_width && row.dropout[i] != 0; d++) {
              const double go = at(grad.grad_out, b, h, t, d);
              dw[i] += row.dropout[i] * go * at(p.v, b, g, row.keys[i], d);
              dv.sum[row.keys[i] * p.value_width + d] += row.dropout[i] * row.weight[i] * go;
            }
          }
          dalpha[h] +=
              entmax::row_backward(row.weight.data(), dw.data(), n, alpha_of(p, h), ds.data());
          for (int64_t i = 0; i < n; i++) {
            dmask.add(b, h, t, row.keys[i], ds[i]);
            for (int64_t d = 0; d < p.width; d++) {
              dq.sum[t * p.width + d] += p.scale * ds[i] * at(p.k, b, g, row.keys[i], d);
              dk.sum[row.keys[i] * p.width + d] += p.scale * ds[i] * at(p.q, b, h, t, d);
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
  if (grad.dalpha != nullptr) std::copy(dalpha.begin(), dalpha.end(), grad.dalpha);
}

}  // namespace hedgerow::kernels
