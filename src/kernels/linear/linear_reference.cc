#include "kernels/linear/linear_reference.h"

#include <numbers>
#include <vector>

#include "base/parallel.h"
#include "kernels/common/elements.h"
#include "kernels/linear/attention_reference.h"
#include "kernels/linear/linear_internal.h"

namespace hedgerow::kernels::reference {
namespace {

using Doubles = std::vector<double>;

// ---- between the tensors and double -------------------------------------------------------------

// Type of states and of what is saved for the backward.
DType state_dtype(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

std::vector<char> kept_keys(const KeyMask& mask, int64_t b, int64_t keys) {
  std::vector<char> keep(keys);
  for (int64_t s = 0; s < keys; s++) keep[s] = mask.keep(b, s);
  return keep;
}

// A key/value head with its initial state, in double, and the problem that refers to them.
struct KeySide {
  std::vector<char> keep;
  Doubles k, v, s0, z0, m0;
};

template <typename P>
HeadProblem problem_of(const P& p, int64_t features, bool exponents, const KeySide& side,
                       const Doubles& q) {
  HeadProblem out;
  out.exponents = exponents;
  out.is_causal = p.is_causal;
  out.queries = p.queries;
  out.keys = p.keys;
  out.features = features;
  out.value_dim = p.value_dim;
  out.q = q.data();
  out.k = side.k.data();
  out.v = side.v.data();
  out.keep = side.keep.data();
  out.s0 = side.s0.data();
  out.z0 = side.z0.data();
  out.m0 = side.m0.data();
  return out;
}

template <typename P>
KeySide load_side(const P& p, int64_t features, const void* m_in, int64_t b, int64_t kv) {
  const DType state = state_dtype(p.dtype);
  const int64_t index = b * p.kv_heads + kv;
  KeySide side;
  side.keep = kept_keys(p.key_mask, b, p.keys);
  side.v = load_rows(p.dtype, p.v, b, kv, p.keys, p.value_dim, side.keep);
  side.s0 = load_block(state, p.s_in, index, features * p.value_dim);
  side.z0 = load_block(state, p.z_in, index, features);
  side.m0 = load_block(state, m_in, index, features);
  return side;
}

// Writes out and what is saved for the backward of one head.
template <typename P>
void store_head(const P& p, const HeadProblem& head, int64_t b, int64_t h, void* row_exponent) {
  const DType state = state_dtype(p.dtype);
  const HeadRows rows = head_forward(head);
  store_rows(p.dtype, rows.out, p.out, b, h, p.queries, p.value_dim);
  const int64_t at = (b * p.heads + h) * p.queries;
  for (int64_t t = 0; t < p.queries; t++) {
    const double den = rows.den[t];
    if (p.inv_den) store_element(state, p.inv_den, at + t, den == 0 ? 0 : 1 / den);
    if (row_exponent) {
      store_element(state, row_exponent, at + t, rows.maximum[t] * std::numbers::log2e);
    }
  }
}

template <typename P>
void store_state(const P& p, const HeadProblem& head, int64_t index, void* m_out) {
  const DType state = state_dtype(p.dtype);
  if (!p.s_out && !p.z_out && !m_out) return;
  Doubles s(head.features * head.value_dim), z(head.features), m(head.features);
  head_state(head, s.data(), z.data(), m.data());
  store_block(state, s, p.s_out, index);
  store_block(state, z, p.z_out, index);
  store_block(state, m, m_out, index);
}

// ---- gradients of one key/value head ------------------------------------------------------------

// Sums over the query heads of a group.
struct KeyGradients {
  Doubles k, v, s0, z0;
  KeyGradients(const HeadProblem& head)
      : k(head.keys * head.features),
        v(head.keys * head.value_dim),
        s0(head.features * head.value_dim),
        z0(head.features) {}
  HeadGradients with(Doubles& q) {
    return HeadGradients{q.data(), k.data(), v.data(), s0.data(), z0.data()};
  }
};

// Gradients of one key/value head except the queries', which go to done(h, dq); load(h) gives q.
template <typename P, typename Load, typename Done>
KeyGradients key_head_backward(const P& p, const KeySide& side, int64_t features, bool exponents,
                               const void* m_out, int64_t b, int64_t kv, const Load& load,
                               const Done& done) {
  const DType state = state_dtype(p.dtype);
  const int64_t group = p.heads / p.kv_heads, index = b * p.kv_heads + kv;
  KeyGradients grads(problem_of(p, features, exponents, side, {}));
  for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
    const Doubles q = load(h);
    Doubles dq(q.size());
    const Doubles grad_out = load_rows(p.dtype, p.grad_out, b, h, p.queries, p.value_dim);
    head_backward(problem_of(p, features, exponents, side, q), grad_out.data(), grads.with(dq));
    done(h, dq);
  }
  if (p.grad_s_out || p.grad_z_out) {
    Doubles none;
    const Doubles gs = load_block(state, p.grad_s_out, index, features * p.value_dim);
    const Doubles gz = load_block(state, p.grad_z_out, index, features);
    const Doubles m = load_block(state, m_out, index, features);
    head_state_backward(problem_of(p, features, exponents, side, {}), m.data(), gs.data(),
                        gz.data(), grads.with(none));
  }
  store_rows(p.dtype, grads.v, p.grad_v, b, kv, p.keys, p.value_dim);
  store_block(state, grads.s0, p.grad_s_in, index);
  store_block(state, grads.z0, p.grad_z_in, index);
  return grads;
}

// ---- feature maps -------------------------------------------------------------------------------

// A map with the weights of one head, in double.
struct Projection {
  FeatureMap map;
  int64_t dim, width, features;
  Doubles weight, bias;

  static Projection load(DType dtype, FeatureMap map, int64_t dim, int64_t width,
                         const void* weight, const void* bias, int64_t h) {
    return Projection{map,
                      dim,
                      width,
                      feature_width(map, width),
                      load_block(dtype, weight, h, dim * width),
                      load_block(dtype, bias, h, width)};
  }

  double project(const double* x, double* y) const {
    double norm = 0;
    for (int64_t e = 0; e < width; e++) y[e] = bias[e];
    for (int64_t d = 0; d < dim; d++) {
      norm += x[d] * x[d];
      for (int64_t e = 0; e < width; e++) y[e] += x[d] * weight[d * width + e];
    }
    return norm;
  }

  // Features of x [rows,dim]; for kExp the exponents [y, -y].
  Doubles apply(const Doubles& x, int64_t rows) const {
    Doubles out(rows * features), y(width);
    for (int64_t r = 0; r < rows; r++) {
      const double norm = project(&x[r * dim], y.data());
      double* f = &out[r * features];
      if (map != FeatureMap::kExp) {
        map_row(map, width, y.data(), norm, f);
        continue;
      }
      for (int64_t e = 0; e < width; e++) {
        f[e] = y[e];
        f[width + e] = -y[e];
      }
    }
    return out;
  }

  // Gradient of x for the gradient of apply(); adds to dw and db.
  Doubles backward(const Doubles& x, const Doubles& grad, int64_t rows, Doubles& dw,
                   Doubles& db) const {
    Doubles dx(rows * dim), y(width), dy(width), phi(features);
    for (int64_t r = 0; r < rows; r++) {
      const double norm = project(&x[r * dim], y.data());
      const double* g = &grad[r * features];
      double along_x = 0;
      if (map == FeatureMap::kExp) {
        for (int64_t e = 0; e < width; e++) dy[e] = g[e] - g[width + e];
      } else {
        map_row(map, width, y.data(), norm, phi.data());
        along_x = map_row_backward(map, width, y.data(), phi.data(), g, dy.data());
      }
      for (int64_t e = 0; e < width; e++) db[e] += dy[e];
      for (int64_t d = 0; d < dim; d++) {
        dx[r * dim + d] = along_x * x[r * dim + d];
        for (int64_t e = 0; e < width; e++) {
          dx[r * dim + d] += dy[e] * weight[d * width + e];
          dw[d * width + e] += dy[e] * x[r * dim + d];
        }
      }
    }
    return dx;
  }
};

template <typename P>
Projection query_map(const P& p, int64_t h) {
  return Projection::load(p.dtype, p.map, p.dim, p.width, p.wq, p.bq, h);
}
template <typename P>
Projection key_map(const P& p, int64_t kv) {
  return Projection::load(p.dtype, p.map, p.dim, p.width, p.wk, p.bk, kv);
}

}  // namespace

// ---- linear attention over features -------------------------------------------------------------

void linear_attention_forward(const LinearForward& p) {
  const int64_t group = p.kv_heads ? p.heads / p.kv_heads : 0;
  parallel_for(p.batch * p.kv_heads, [&](int64_t task, int64_t) {
    const int64_t b = task / p.kv_heads, kv = task % p.kv_heads;
    KeySide side = load_side(p, p.features, nullptr, b, kv);
    side.k = load_rows(p.dtype, p.phi_k, b, kv, p.keys, p.features, side.keep);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
      const Doubles q = load_rows(p.dtype, p.phi_q, b, h, p.queries, p.features);
      store_head(p, problem_of(p, p.features, false, side, q), b, h, nullptr);
    }
    store_state(p, problem_of(p, p.features, false, side, {}), task, nullptr);
  });
}

void linear_attention_backward(const LinearBackward& p) {
  parallel_for(p.batch * p.kv_heads, [&](int64_t task, int64_t) {
    const int64_t b = task / p.kv_heads, kv = task % p.kv_heads;
    KeySide side = load_side(p, p.features, nullptr, b, kv);
    side.k = load_rows(p.dtype, p.phi_k, b, kv, p.keys, p.features, side.keep);
    const KeyGradients grads = key_head_backward(
        p, side, p.features, false, nullptr, b, kv,
        [&](int64_t h) { return load_rows(p.dtype, p.phi_q, b, h, p.queries, p.features); },
        [&](int64_t h, const Doubles& dq) {
          store_rows(p.dtype, dq, p.grad_phi_q, b, h, p.queries, p.features);
        });
    store_rows(p.dtype, grads.k, p.grad_phi_k, b, kv, p.keys, p.features);
  });
}

// ---- Hedgehog attention -------------------------------------------------------------------------

void hedgehog_attention_forward(const HedgehogForward& p) {
  const bool exponents = p.map == FeatureMap::kExp;
  const int64_t features = feature_width(p.map, p.width);
  const int64_t group = p.kv_heads ? p.heads / p.kv_heads : 0;
  parallel_for(p.batch * p.kv_heads, [&](int64_t task, int64_t) {
    const int64_t b = task / p.kv_heads, kv = task % p.kv_heads;
    KeySide side = load_side(p, features, exponents ? p.m_in : nullptr, b, kv);
    side.k = key_map(p, kv).apply(load_rows(p.dtype, p.k, b, kv, p.keys, p.dim, side.keep), p.keys);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
      const Doubles q =
          query_map(p, h).apply(load_rows(p.dtype, p.q, b, h, p.queries, p.dim), p.queries);
      store_head(p, problem_of(p, features, exponents, side, q), b, h, p.row_exponent);
    }
    store_state(p, problem_of(p, features, exponents, side, {}), task, p.m_out);
  });
}

void hedgehog_attention_backward(const HedgehogBackward& p) {
  const bool exponents = p.map == FeatureMap::kExp;
  const int64_t features = feature_width(p.map, p.width), E = p.width;
  const int64_t group = p.kv_heads ? p.heads / p.kv_heads : 0;
  parallel_for(p.kv_heads, [&](int64_t kv, int64_t) {
    const Projection key_proj = key_map(p, kv);
    std::vector<Doubles> dwq(group, Doubles(p.dim * E)), dbq(group, Doubles(E));
    Doubles dwk(p.dim * E), dbk(E);
    for (int64_t b = 0; b < p.batch; b++) {
      KeySide side = load_side(p, features, exponents ? p.m_in : nullptr, b, kv);
      const Doubles k = load_rows(p.dtype, p.k, b, kv, p.keys, p.dim, side.keep);
      side.k = key_proj.apply(k, p.keys);
      KeyGradients grads = key_head_backward(
          p, side, features, exponents, exponents ? p.m_out : nullptr, b, kv,
          [&](int64_t h) {
            return query_map(p, h).apply(load_rows(p.dtype, p.q, b, h, p.queries, p.dim),
                                         p.queries);
          },
          [&](int64_t h, const Doubles& dq) {
            const Doubles q = load_rows(p.dtype, p.q, b, h, p.queries, p.dim);
            const Doubles dx = query_map(p, h).backward(q, dq, p.queries, dwq[h - kv * group],
                                                        dbq[h - kv * group]);
            store_rows(p.dtype, dx, p.grad_q, b, h, p.queries, p.dim);
          });
      store_rows(p.dtype, key_proj.backward(k, grads.k, p.keys, dwk, dbk), p.grad_k, b, kv, p.keys,
                 p.dim);
    }
    for (int64_t g = 0; g < group; g++) {
      store_block(p.dtype, dwq[g], p.grad_wq, kv * group + g);
      store_block(p.dtype, dbq[g], p.grad_bq, kv * group + g);
    }
    store_block(p.dtype, dwk, p.grad_wk, kv);
    store_block(p.dtype, dbk, p.grad_bk, kv);
  });
}

void linear_attention_step(const LinearStep& p) {
  reference::linear_attention_forward(linear::as_forward(p));
}
void hedgehog_attention_step(const HedgehogStep& p) {
  reference::hedgehog_attention_forward(linear::as_forward(p));
}

}  // namespace hedgerow::kernels::reference
