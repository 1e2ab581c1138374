// Inputs, outputs and gradients of an entmax attention test, wrapped for the kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "hedgerow/kernels/entmax_attention.h"
#include "kernels/entmax/attention_internal.h"
#include "testing/attention_data.h"

namespace hedgerow::testing_support {

// Softmax, its neighbours, the paper's, sparsemax, and those solved in double.
inline std::vector<double> entmax_alphas() {
  return {1.0, 1.0 + 1e-7, 1.0001, 1.01, 1.25, 1.5, 1.9, 2.0, 3.0, 10.0};
}

struct EntmaxData : AttentionData {
  std::vector<double> alpha, dalpha;  // [H]
  std::vector<float> stats, weight;
  std::vector<uint8_t> index;
  double scale;

  // Head h has alpha h + first of entmax_alphas(), in turn.
  explicit EntmaxData(const AttentionCase& which, int64_t first = 0,
                      kernels::DType dtype = kernels::DType::kFloat32, bool rows_first = false)
      : AttentionData(which, dtype, rows_first),
        dalpha(c.heads, std::nan("")),
        stats(rows() * kernels::kEntmaxRowStats, std::nanf("")),
        weight(rows() * capacity(), std::nanf("")),
        index(rows() * capacity() * kernels::entmax_support_index_bytes(c.keys), 0xff),
        scale(AttentionData::params().scale) {
    const std::vector<double> all = entmax_alphas();
    for (int64_t h = 0; h < c.heads; h++) alpha.push_back(all[(h + first) % all.size()]);
  }

  int64_t rows() const { return c.batch * c.heads * c.queries; }
  int64_t capacity() const { return kernels::entmax_support_capacity(c.keys); }

  kernels::EntmaxAttentionParams params() const {
    kernels::EntmaxAttentionParams p{AttentionData::params(), alpha.data(), 1};
    p.scale = scale;
    return p;
  }
  kernels::EntmaxSupport support() { return {stats.data(), index.data(), weight.data()}; }
  kernels::EntmaxGradients gradients() {
    return {support(), grad_out.view(), dq.mut(),     dk.mut(),
            dv.mut(),  mask.gradient(), dalpha.data()};
  }

  void run() {
    const kernels::EntmaxSupport kept = support();
    kernels::entmax_attention_forward(params(), out.mut(), &kept);
    kernels::entmax_attention_backward(params(), gradients());
  }
  void run_reference() {
    const kernels::EntmaxSupport kept = support();
    kernels::entmax_attention_forward_reference(params(), out.mut(), &kept);
    kernels::entmax_attention_backward_reference(params(), gradients());
  }

  // Rounds the inputs so that float32 holds every score exactly. What depends on the last bits of
  // scores, such as large alphas, can be compared then; many scores are equal.
  void make_scores_exact() {
    const auto round_all = [](HostTensor& x) {
      x.for_each([&](int64_t b, int64_t h, int64_t r, int64_t d) {
        x.set(b, h, r, d, std::round(8 * x.get(b, h, r, d)) / 8);
      });
    };
    round_all(q);
    round_all(k);
    scale = 0.125;
    for (float& m : mask.add) {
      if (std::fabs(m) < 100) m = std::round(64 * m) / 64;
    }
  }

  // Score of a key in double, -inf where it is excluded.
  double score(int64_t b, int64_t h, int64_t t, int64_t s) const {
    const kernels::EntmaxAttentionParams p = params();
    const double bias = kernels::mask_value(p.mask, b, h, t, s);
    if (s >= kernels::causal_keys(p, t) || bias == -std::numeric_limits<double>::infinity()) {
      return -std::numeric_limits<double>::infinity();
    }
    double dot = 0;
    for (int64_t d = 0; d < c.width; d++) {
      dot += q.get(b, h, t, d) * k.get(b, h / (c.heads / c.kv_heads), s, d);
    }
    return scale * dot + bias;
  }

  // Largest size of a visible score without its mask.
  double score_size() const {
    double size = 0;
    for (int64_t b = 0; b < c.batch; b++) {
      for (int64_t h = 0; h < c.heads; h++) {
        for (int64_t t = 0; t < c.queries; t++) {
          for (int64_t s = 0; s < c.keys; s++) {
            double dot = 0;
            for (int64_t d = 0; d < c.width; d++) {
              dot += q.get(b, h, t, d) * k.get(b, h / (c.heads / c.kv_heads), s, d);
            }
            size = std::max(size, std::fabs(dot) * scale);
          }
        }
      }
    }
    return size;
  }

  // Zeroes the incoming gradient of rows with a score so near the threshold that rounding may put
  // it on either side: both gradients are right there.
  void silence_rows_on_the_edge(double margin) {
    std::vector<double> z(c.keys), scratch;
    for (int64_t b = 0; b < c.batch; b++) {
      for (int64_t h = 0; h < c.heads; h++) {
        const double e = alpha[h] - 1;
        for (int64_t t = 0; t < c.queries; t++) {
          for (int64_t s = 0; s < c.keys; s++) z[s] = score(b, h, t, s);
          const auto row = kernels::entmax::solve(z.data(), c.keys, e, scratch);
          const double lambda = row.lambda();
          bool near = false;
          for (const double x : z) near |= std::fabs(1 + e * (x - lambda)) < margin * (1 + e);
          if (near) grad_out.set_row(b, h, t, 0.0);
        }
      }
    }
  }
};

}  // namespace hedgerow::testing_support
