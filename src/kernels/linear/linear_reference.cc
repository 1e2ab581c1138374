#include "kernels/linear/linear_reference.h"

#include <numbers>
#include <vector>

#include "base/parallel.h"
#include "kernels/linear/attention_reference.h"
#include "kernels/linear/element.h"
#include "kernels/linear/linear_internal.h"

namespace hedgerow::kernels::reference {
namespace {

using Doubles = std::vector<double>;

// ---- between the tensors and double -------------------------------------------------------------

// [rows][width] of one head; rows that are not kept stay 0 and are not read.
template <typename T>
Doubles load_rows(const ConstTensor& x, int64_t b, int64_t h, int64_t rows, int64_t width,
                  const std::vector<char>& keep = {}) {
  Doubles out(rows * width);
  for (int64_t r = 0; r < rows; r++) {
    if (!keep.empty() && !keep[r]) continue;
    for (int64_t i = 0; i < width; i++) out[r * width + i] = to_double(row<T>(x, b, h, r)[i]);
  }
  return out;
}

template <typename T>
void store_rows(const Doubles& x, const MutTensor& out, int64_t b, int64_t h, int64_t rows,
                int64_t width) {
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t i = 0; i < width; i++) store(row<T>(out, b, h, r) + i, x[r * width + i]);
  }
}

// Block `index` of `size` elements of a contiguous array; null gives zeros.
template <typename T>
Doubles load_block(const void* data, int64_t index, int64_t size) {
  Doubles out(size);
  for (int64_t i = 0; data && i < size; i++) {
    out[i] = to_double(static_cast<const T*>(data)[index * size + i]);
  }
  return out;
}
template <typename T>
void store_block(const Doubles& x, void* data, int64_t index) {
  const int64_t size = static_cast<int64_t>(x.size());
  for (int64_t i = 0; data && i < size; i++) store(static_cast<T*>(data) + index * size + i, x[i]);
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

template <typename T, typename P>
KeySide load_side(const P& p, int64_t features, const void* m_in, int64_t b, int64_t kv) {
  using S = typename StateOf<T>::type;
  const int64_t index = b * p.kv_heads + kv;
  KeySide side;
  side.keep = kept_keys(p.key_mask, b, p.keys);
  side.v = load_rows<T>(p.v, b, kv, p.keys, p.value_dim, side.keep);
  side.s0 = load_block<S>(p.s_in, index, features * p.value_dim);
  side.z0 = load_block<S>(p.z_in, index, features);
  side.m0 = load_block<S>(m_in, index, features);
  return side;
}

// Writes out and what is saved for the backward of one head.
template <typename T, typename P>
void store_head(const P& p, const HeadProblem& head, int64_t b, int64_t h, void* row_exponent) {
  using S = typename StateOf<T>::type;
  const HeadRows rows = head_forward(head);
  store_rows<T>(rows.out, p.out, b, h, p.queries, p.value_dim);
  const int64_t at = (b * p.heads + h) * p.queries;
  for (int64_t t = 0; t < p.queries; t++) {
    const double den = rows.den[t];
    if (p.inv_den) store(static_cast<S*>(p.inv_den) + at + t, den == 0 ? 0 : 1 / den);
    if (row_exponent) {
      store(static_cast<S*>(row_exponent) + at + t, rows.maximum[t] * std::numbers::log2e);
    }
  }
}

template <typename T, typename P>
void store_state(const P& p, const HeadProblem& head, int64_t index, void* m_out) {
  using S = typename StateOf<T>::type;
  if (!p.s_out && !p.z_out && !m_out) return;
  Doubles s(head.features * head.value_dim), z(head.features), m(head.features);
  head_state(head, s.data(), z.data(), m.data());
  store_block<S>(s, p.s_out, index);
  store_block<S>(z, p.z_out, index);
  store_block<S>(m, m_out, index);
}

// ---- linear attention over features -------------------------------------------------------------

template <typename T>
void linear_forward(const LinearForward& p) {
  const int64_t group = p.kv_heads ? p.heads / p.kv_heads : 0;
  parallel_for(p.batch * p.kv_heads, [&](int64_t task, int64_t) {
    const int64_t b = task / p.kv_heads, kv = task % p.kv_heads;
    KeySide side = load_side<T>(p, p.features, nullptr, b, kv);
    side.k = load_rows<T>(p.phi_k, b, kv, p.keys, p.features, side.keep);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
      const Doubles q = load_rows<T>(p.phi_q, b, h, p.queries, p.features);
      store_head<T>(p, problem_of(p, p.features, false, side, q), b, h, nullptr);
    }
    store_state<T>(p, problem_of(p, p.features, false, side, {}), task, nullptr);
  });
}

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
template <typename T, typename P, typename Load, typename Done>
KeyGradients key_head_backward(const P& p, const KeySide& side, int64_t features, bool exponents,
                               const void* m_out, int64_t b, int64_t kv, const Load& load,
                               const Done& done) {
  using S = typename StateOf<T>::type;
  const int64_t group = p.heads / p.kv_heads, index = b * p.kv_heads + kv;
  KeyGradients grads(problem_of(p, features, exponents, side, {}));
  for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
    const Doubles q = load(h);
    Doubles dq(q.size());
    const Doubles grad_out = load_rows<T>(p.grad_out, b, h, p.queries, p.value_dim);
    head_backward(problem_of(p, features, exponents, side, q), grad_out.data(), grads.with(dq));
    done(h, dq);
  }
  if (p.grad_s_out || p.grad_z_out) {
    Doubles none;
    const Doubles gs = load_block<S>(p.grad_s_out, index, features * p.value_dim);
    const Doubles gz = load_block<S>(p.grad_z_out, index, features);
    const Doubles m = load_block<S>(m_out, index, features);
    head_state_backward(problem_of(p, features, exponents, side, {}), m.data(), gs.data(),
                        gz.data(), grads.with(none));
  }
  store_rows<T>(grads.v, p.grad_v, b, kv, p.keys, p.value_dim);
  store_block<S>(grads.s0, p.grad_s_in, index);
  store_block<S>(grads.z0, p.grad_z_in, index);
  return grads;
}

template <typename T>
void linear_backward(const LinearBackward& p) {
  parallel_for(p.batch * p.kv_heads, [&](int64_t task, int64_t) {
    const int64_t b = task / p.kv_heads, kv = task % p.kv_heads;
    KeySide side = load_side<T>(p, p.features, nullptr, b, kv);
    side.k = load_rows<T>(p.phi_k, b, kv, p.keys, p.features, side.keep);
    const KeyGradients grads = key_head_backward<T>(
        p, side, p.features, false, nullptr, b, kv,
        [&](int64_t h) { return load_rows<T>(p.phi_q, b, h, p.queries, p.features); },
        [&](int64_t h, const Doubles& dq) {
          store_rows<T>(dq, p.grad_phi_q, b, h, p.queries, p.features);
        });
    store_rows<T>(grads.k, p.grad_phi_k, b, kv, p.keys, p.features);
  });
}

// ---- Hedgehog attention -------------------------------------------------------------------------

// A map with the weights of one head, in double.
struct Projection {
  FeatureMap map;
  int64_t dim, width, features;
  Doubles weight, bias;

  template <typename T>
  static Projection load(FeatureMap map, int64_t dim, int64_t width, const void* weight,
                         const void* bias, int64_t h) {
    return Projection{map,
                      dim,
                      width,
                      feature_width(map, width),
                      load_block<T>(weight, h, dim * width),
                      load_block<T>(bias, h, width)};
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

template <typename T, typename P>
Projection query_map(const P& p, int64_t h) {
  return Projection::load<T>(p.map, p.dim, p.width, p.wq, p.bq, h);
}
template <typename T, typename P>
Projection key_map(const P& p, int64_t kv) {
  return Projection::load<T>(p.map, p.dim, p.width, p.wk, p.bk, kv);
}

template <typename T>
void hedgehog_forward(const HedgehogForward& p) {
  const bool exponents = p.map == FeatureMap::kExp;
  const int64_t features = feature_width(p.map, p.width);
  const int64_t group = p.kv_heads ? p.heads / p.kv_heads : 0;
  parallel_for(p.batch * p.kv_heads, [&](int64_t task, int64_t) {
    const int64_t b = task / p.kv_heads, kv = task % p.kv_heads;
    KeySide side = load_side<T>(p, features, exponents ? p.m_in : nullptr, b, kv);
    side.k = key_map<T>(p, kv).apply(load_rows<T>(p.k, b, kv, p.keys, p.dim, side.keep), p.keys);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
      const Doubles q =
          query_map<T>(p, h).apply(load_rows<T>(p.q, b, h, p.queries, p.dim), p.queries);
      store_head<T>(p, problem_of(p, features, exponents, side, q), b, h, p.row_exponent);
    }
    store_state<T>(p, problem_of(p, features, exponents, side, {}), task, p.m_out);
  });
}

template <typename T>
void hedgehog_backward(const HedgehogBackward& p) {
  const bool exponents = p.map == FeatureMap::kExp;
  const int64_t features = feature_width(p.map, p.width), E = p.width;
  const int64_t group = p.kv_heads ? p.heads / p.kv_heads : 0;
  parallel_for(p.kv_heads, [&](int64_t kv, int64_t) {
    const Projection key_proj = key_map<T>(p, kv);
    std::vector<Doubles> dwq(group, Doubles(p.dim * E)), dbq(group, Doubles(E));
    Doubles dwk(p.dim * E), dbk(E);
    for (int64_t b = 0; b < p.batch; b++) {
      KeySide side = load_side<T>(p, features, exponents ? p.m_in : nullptr, b, kv);
      const Doubles k = load_rows<T>(p.k, b, kv, p.keys, p.dim, side.keep);
      side.k = key_proj.apply(k, p.keys);
      KeyGradients grads = key_head_backward<T>(
          p, side, features, exponents, exponents ? p.m_out : nullptr, b, kv,
          [&](int64_t h) {
            return query_map<T>(p, h).apply(load_rows<T>(p.q, b, h, p.queries, p.dim), p.queries);
          },
          [&](int64_t h, const Doubles& dq) {
            const Doubles q = load_rows<T>(p.q, b, h, p.queries, p.dim);
            const Doubles dx = query_map<T>(p, h).backward(q, dq, p.queries, dwq[h - kv * group],
                                                           dbq[h - kv * group]);
            store_rows<T>(dx, p.grad_q, b, h, p.queries, p.dim);
          });
      store_rows<T>(key_proj.backward(k, grads.k, p.keys, dwk, dbk), p.grad_k, b, kv, p.keys,
                    p.dim);
    }
    for (int64_t g = 0; g < group; g++) {
      store_block<T>(dwq[g], p.grad_wq, kv * group + g);
      store_block<T>(dbq[g], p.grad_bq, kv * group + g);
    }
    store_block<T>(dwk, p.grad_wk, kv);
    store_block<T>(dbk, p.grad_bk, kv);
  });
}

}  // namespace

void linear_attention_forward(const LinearForward& p) {
  with_dtype(p.dtype, [&](auto t) { linear_forward<decltype(t)>(p); });
}
void linear_attention_backward(const LinearBackward& p) {
  with_dtype(p.dtype, [&](auto t) { linear_backward<decltype(t)>(p); });
}
void hedgehog_attention_forward(const HedgehogForward& p) {
  with_dtype(p.dtype, [&](auto t) { hedgehog_forward<decltype(t)>(p); });
}
void hedgehog_attention_backward(const HedgehogBackward& p) {
  with_dtype(p.dtype, [&](auto t) { hedgehog_backward<decltype(t)>(p); });
}

void linear_attention_step(const LinearStep& p) {
  reference::linear_attention_forward(linear::as_forward(p));
}
void hedgehog_attention_step(const HedgehogStep& p) {
  reference::hedgehog_attention_forward(linear::as_forward(p));
}

}  // namespace hedgerow::kernels::reference
