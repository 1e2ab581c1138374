#include "kernels/softmax/softmax_reference.h"

#include <vector>

#include "hedgerow/kernels/softmax.h"
#include "kernels/common/elements.h"
#include "kernels/softmax/reference_sums.h"

namespace hedgerow::kernels {

void softmax_attention_forward_reference(const SoftmaxParams& p, const MutTensor& out, float* lse) {
  reference_forward<double>(p, out, lse);
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
          const ReferenceRow<double> row = reference_row<double>(p, b, h, t);
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
