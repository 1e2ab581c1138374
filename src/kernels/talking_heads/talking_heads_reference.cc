#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/counter_rng.h"
#include "hedgerow/kernels/talking_heads.h"
#include "kernels/common/elements.h"
#include "kernels/entmax/entmax_math.h"
#include "kernels/softmax/reference_sums.h"
#include "kernels/talking_heads/talking_heads_internal.h"

namespace hedgerow::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// A projection with its dynamic terms: entry (i, o) of the pair (t, s).
struct Projection {
  const void *fixed, *x, *m;  // [in,out], [B,T,in,out], [B,S,in,out]
  int64_t in, out;
  DType dtype;

  double at(const TalkingHeadsParams& p, int64_t b, int64_t t, int64_t s, int64_t i,
            int64_t o) const {
    if (fixed == nullptr) return i == o ? 1.0 : 0.0;
    const int64_t n = i * out + o, size = in * out;
    double value = load_element(dtype, fixed, n);
    if (x != nullptr) value += load_element(dtype, x, (b * p.queries + t) * size + n);
    if (m != nullptr) value += load_element(dtype, m, (b * p.keys + s) * size + n);
    return value;
  }
};

Projection logits_projection(const TalkingHeadsParams& p) {
  return {p.logits_proj, p.x_logits, p.m_logits, p.key_heads, p.heads, projection_dtype(p.dtype)};
}
Projection weights_projection(const TalkingHeadsParams& p) {
  return {p.weights_proj, p.x_weights,   p.m_weights,
          p.heads,        p.value_heads, projection_dtype(p.dtype)};
}

// The gradients of a projection and its terms, in double until they are written.
class ProjectionSum {
 public:
  ProjectionSum(const TalkingHeadsParams& p, const Projection& of, void* fixed, void* x, void* m)
      : p_(p), of_(of), to_{fixed, x, m} {
    const int64_t size = of.in * of.out;
    if (fixed) sum_[0].resize(size);
    if (x) sum_[1].resize(p.batch * p.queries * size);
    if (m) sum_[2].resize(p.batch * p.keys * size);
  }
  void add(int64_t b, int64_t t, int64_t s, int64_t i, int64_t o, double value) {
    const int64_t n = i * of_.out + o, size = of_.in * of_.out;
    if (to_[0]) sum_[0][n] += value;
    if (to_[1]) sum_[1][(b * p_.queries + t) * size + n] += value;
    if (to_[2]) sum_[2][(b * p_.keys + s) * size + n] += value;
  }
  void store() const {
    for (int k = 0; k < 3; k++) {
      for (size_t i = 0; i < sum_[k].size(); i++) {
        store_element(of_.dtype, to_[k], static_cast<int64_t>(i), sum_[k][i]);
      }
    }
  }

 private:
  const TalkingHeadsParams& p_;
  const Projection& of_;
  void* to_[3];
  std::vector<double> sum_[3];
};

// All heads of one query: [heads][S] each.
struct Row {
  std::vector<bool> visible;           // of the H heads
  std::vector<bool> seen;              // [S]: visible to any of them
  std::vector<double> scores;          // J
  std::vector<double> weights, mixed;  // W, U
  std::vector<double> dropout;         // of U: 0 or 1 / (1 - p)
};

Row attend(const TalkingHeadsParams& p, int64_t b, int64_t t) {
  const SoftmaxParams rows = mask_view(p);
  const Projection pl = logits_projection(p), pw = weights_projection(p);
  const int64_t n = p.keys, group = p.key_kv_heads ? p.key_heads / p.key_kv_heads : 1;
  Row row;
  row.visible.resize(p.heads * n);
  row.seen.resize(n);
  row.scores.resize(p.key_heads * n);
  row.weights.resize(p.heads * n);
  row.mixed.resize(p.value_heads * n);
  row.dropout.assign(p.value_heads * n, 1.0);
  for (int64_t h = 0; h < p.heads; h++) {
    for (int64_t s = 0; s < causal_keys(rows, t); s++) {
      if (mask_value(p.mask, b, h, t, s) == -kInf) continue;
      row.visible[h * n + s] = row.seen[s] = true;
    }
  }
  for (int64_t a = 0; a < p.key_heads; a++) {
    for (int64_t s = 0; s < n; s++) {
      for (int64_t d = 0; d < p.width && row.seen[s]; d++) {
        row.scores[a * n + s] +=
            p.scale * load_element(p.dtype, p.q.data, row_index(p.q, b, a, t) + d) *
            load_element(p.dtype, p.k.data, row_index(p.k, b, a / group, s) + d);
      }
    }
  }
  for (int64_t h = 0; h < p.heads; h++) {
    std::vector<double> logits(n, -kInf);
    double max = -kInf, sum = 0;
    for (int64_t s = 0; s < n; s++) {
      if (!row.visible[h * n + s]) continue;
      logits[s] = mask_value(p.mask, b, h, t, s);
      for (int64_t a = 0; a < p.key_heads; a++) {
        logits[s] += row.scores[a * n + s] * pl.at(p, b, t, s, a, h);
      }
      max = std::max(max, logits[s]);
    }
    double* w = row.weights.data() + h * n;
    if (p.alpha != nullptr) {
      entmax::row_forward(logits.data(), n, p.alpha[h * p.alpha_stride], w);
      continue;
    }
    for (int64_t s = 0; s < n; s++) {
      if (row.visible[h * n + s]) sum += w[s] = std::exp(logits[s] - max);
    }
    for (int64_t s = 0; s < n && sum > 0; s++) w[s] /= sum;
  }
  for (int64_t c = 0; c < p.value_heads; c++) {
    const uint64_t key = dropout_row_key(p.dropout_seed, b, c, t);
    for (int64_t s = 0; s < n; s++) {
      for (int64_t h = 0; h < p.heads; h++) {
        const double w = row.weights[h * n + s];
        if (w != 0) row.mixed[c * n + s] += w * pw.at(p, b, t, s, h, c);
      }
      if (p.dropout_p == 0) continue;
      const bool keep = dropout_bits(key, s) >= dropout_threshold(p.dropout_p);
      row.dropout[c * n + s] = keep ? 1.0 / (1.0 - p.dropout_p) : 0.0;
    }
  }
  return row;
}

}  // namespace

void talking_heads_forward_reference(const TalkingHeadsParams& p, const MutTensor& out) {
  const int64_t n = p.keys, group = p.value_kv_heads ? p.value_heads / p.value_kv_heads : 1;
  std::vector<double> y(p.value_width);
  for (int64_t b = 0; b < p.batch; b++) {
    for (int64_t t = 0; t < p.queries; t++) {
      const Row row = attend(p, b, t);
      for (int64_t c = 0; c < p.value_heads; c++) {
        std::fill(y.begin(), y.end(), 0.0);
        for (int64_t s = 0; s < n; s++) {
          const double u = row.mixed[c * n + s] * row.dropout[c * n + s];
          for (int64_t d = 0; d < p.value_width && u != 0; d++) {
            y[d] += u * load_element(p.dtype, p.v.data, row_index(p.v, b, c / group, s) + d);
          }
        }
        for (int64_t d = 0; d < p.value_width; d++) {
          store_element(p.dtype, out.data, row_index(out, b, c, t) + d, y[d]);
        }
      }
    }
  }
}

// dU = dropout * (go . v), dW = Pw dU, dL from it as softmax or entmax has it, dJ = Pl dL;
// dv = (dropout U)^T go, dPw = sum W dU, dPl = sum J dL, dq = scale dJ k, dk = scale dJ^T q.
void talking_heads_backward_reference(const TalkingHeadsParams& p, const TalkingHeadsGradients& g) {
  const Projection pl = logits_projection(p), pw = weights_projection(p);
  ProjectionSum dpl(p, pl, g.dlogits_proj, g.dx_logits, g.dm_logits);
  ProjectionSum dpw(p, pw, g.dweights_proj, g.dx_weights, g.dm_weights);
  const SoftmaxParams rows = mask_view(p);
  MaskSum dmask(rows, g.dmask);
  const int64_t n = p.keys;
  const int64_t key_group = p.key_kv_heads ? p.key_heads / p.key_kv_heads : 1;
  const int64_t value_group = p.value_kv_heads ? p.value_heads / p.value_kv_heads : 1;
  const auto at = [&](const ConstTensor& x, int64_t b, int64_t h, int64_t r, int64_t d) {
    return load_element(p.dtype, x.data, row_index(x, b, h, r) + d);
  };
  std::vector<double> dalpha(p.heads);
  for (int64_t b = 0; b < p.batch; b++) {
    std::vector<HeadSum> dq(p.key_heads, HeadSum(p.queries, p.width));
    std::vector<HeadSum> dk(p.key_kv_heads, HeadSum(n, p.width));
    std::vector<HeadSum> dv(p.value_kv_heads, HeadSum(n, p.value_width));
    for (int64_t t = 0; t < p.queries; t++) {
      const Row row = attend(p, b, t);
      std::vector<double> du(p.value_heads * n), dw(n), dl(n), dj(p.key_heads * n);
      for (int64_t c = 0; c < p.value_heads; c++) {
        for (int64_t s = 0; s < n; s++) {
          const double drop = row.dropout[c * n + s], u = row.mixed[c * n + s];
          if (!row.seen[s] || drop == 0) continue;
          for (int64_t d = 0; d < p.value_width; d++) {
            const double go = at(g.grad_out, b, c, t, d);
            du[c * n + s] += drop * go * at(p.v, b, c / value_group, s, d);
            dv[c / value_group].sum[s * p.value_width + d] += drop * u * go;
          }
        }
      }
      for (int64_t h = 0; h < p.heads; h++) {
        const double* w = row.weights.data() + h * n;
        double delta = 0;
        for (int64_t s = 0; s < n; s++) {
          dw[s] = dl[s] = 0;
          for (int64_t c = 0; c < p.value_heads && w[s] != 0; c++) {
            dw[s] += pw.at(p, b, t, s, h, c) * du[c * n + s];
            dpw.add(b, t, s, h, c, w[s] * du[c * n + s]);
          }
          delta += w[s] * dw[s];
        }
        if (p.alpha != nullptr) {
          dalpha[h] +=
              entmax::row_backward(w, dw.data(), n, p.alpha[h * p.alpha_stride], dl.data());
        }
        for (int64_t s = 0; s < n; s++) {
          if (!row.visible[h * n + s]) continue;
          if (p.alpha == nullptr) dl[s] = w[s] * (dw[s] - delta);
          dmask.add(b, h, t, s, dl[s]);
          for (int64_t a = 0; a < p.key_heads; a++) {
            dj[a * n + s] += pl.at(p, b, t, s, a, h) * dl[s];
            dpl.add(b, t, s, a, h, row.scores[a * n + s] * dl[s]);
          }
        }
      }
      for (int64_t a = 0; a < p.key_heads; a++) {
        for (int64_t s = 0; s < n; s++) {
          for (int64_t d = 0; d < p.width && row.seen[s]; d++) {
            const double ds = p.scale * dj[a * n + s];
            dq[a].sum[t * p.width + d] += ds * at(p.k, b, a / key_group, s, d);
            dk[a / key_group].sum[s * p.width + d] += ds * at(p.q, b, a, t, d);
          }
        }
      }
    }
    for (int64_t a = 0; a < p.key_heads; a++) dq[a].store(p.dtype, g.dq, b, a);
    for (int64_t a = 0; a < p.key_kv_heads; a++) dk[a].store(p.dtype, g.dk, b, a);
    for (int64_t c = 0; c < p.value_kv_heads; c++) dv[c].store(p.dtype, g.dv, b, c);
  }
  dpl.store();
  dpw.store();
  dmask.store();
  if (g.dalpha != nullptr) std::copy(dalpha.begin(), dalpha.end(), g.dalpha);
}

}  // namespace hedgerow::kernels
