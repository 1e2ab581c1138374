#include "kernels/linear/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hedgerow::kernels::reference {
namespace {

// Weight that feature f of query t gives to key s, relative to exp(maximum).
double pair(const HeadProblem& p, int64_t t, int64_t s, int64_t f, double maximum) {
  const double q = p.q[t * p.features + f], k = p.k[s * p.features + f];
  return p.exponents ? std::exp(q + k - maximum) : q * k;
}

// What feature f of query t multiplies the initial state by.
double state_factor(const HeadProblem& p, int64_t t, int64_t f, double maximum) {
  const double q = p.q[t * p.features + f];
  return p.exponents ? std::exp(q + p.m0[f] - maximum) : q;
}

// Raises top [F], the largest exponent seen per feature, by keys [from, to).
void raise(const HeadProblem& p, int64_t from, int64_t to, std::vector<double>& top) {
  for (int64_t s = from; s < to; s++) {
    if (!p.keep[s]) continue;
    for (int64_t f = 0; f < p.features; f++) top[f] = std::max(top[f], p.k[s * p.features + f]);
  }
}

std::vector<double> first_top(const HeadProblem& p) {
  std::vector<double> top(p.features, -std::numeric_limits<double>::infinity());
  for (int64_t f = 0; f < p.features; f++) {
    if (p.has_state(f)) top[f] = p.m0[f];
  }
  return top;
}

}  // namespace

int64_t HeadProblem::visible(int64_t t) const {
  return is_causal ? std::clamp<int64_t>(t + keys - queries + 1, 0, keys) : keys;
}

bool HeadProblem::has_state(int64_t f) const {
  bool any = z0[f] != 0;
  for (int64_t j = 0; j < value_dim; j++) any = any || s0[f * value_dim + j] != 0;
  return any;
}

HeadRows head_forward(const HeadProblem& p) {
  HeadRows rows{std::vector<double>(p.queries * p.value_dim), std::vector<double>(p.queries),
                std::vector<double>(p.queries)};
  std::vector<double> top = first_top(p);
  for (int64_t t = 0, seen = 0; t < p.queries; t++) {
    raise(p, seen, p.visible(t), top);
    seen = p.visible(t);
    double maximum = 0, den = 0;
    if (p.exponents) {
      maximum = -std::numeric_limits<double>::infinity();
      for (int64_t f = 0; f < p.features; f++) {
        maximum = std::max(maximum, p.q[t * p.features + f] + top[f]);
      }
      if (std::isinf(maximum)) continue;  // no key yet
    }
    double* out = &rows.out[t * p.value_dim];
    for (int64_t f = 0; f < p.features; f++) {
      if (!p.has_state(f)) continue;
      const double factor = state_factor(p, t, f, maximum);
      den += factor * p.z0[f];
      for (int64_t j = 0; j < p.value_dim; j++) out[j] += factor * p.s0[f * p.value_dim + j];
    }
    for (int64_t s = 0; s < seen; s++) {
      if (!p.keep[s]) continue;
      double weight = 0;
      for (int64_t f = 0; f < p.features; f++) weight += pair(p, t, s, f, maximum);
      den += weight;
      for (int64_t j = 0; j < p.value_dim; j++) out[j] += weight * p.v[s * p.value_dim + j];
    }
    for (int64_t j = 0; j < p.value_dim; j++) out[j] = den == 0 ? 0 : out[j] / den;
    rows.den[t] = den;
    rows.maximum[t] = maximum;
  }
  return rows;
}

void head_state(const HeadProblem& p, double* s, double* z, double* m) {
  std::vector<double> top = first_top(p);
  raise(p, 0, p.keys, top);
  for (int64_t f = 0; f < p.features; f++) {
    m[f] = p.exponents && !std::isinf(top[f]) ? top[f] : 0;
    const double old = p.exponents && p.has_state(f) ? std::exp(p.m0[f] - m[f]) : 1;
    z[f] = p.z0[f] * old;
    for (int64_t j = 0; j < p.value_dim; j++) {
      s[f * p.value_dim + j] = p.s0[f * p.value_dim + j] * old;
    }
    for (int64_t r = 0; r < p.keys; r++) {
      if (!p.keep[r]) continue;
      const double k = p.k[r * p.features + f], phi = p.exponents ? std::exp(k - m[f]) : k;
      z[f] += phi;
      for (int64_t j = 0; j < p.value_dim; j++) {
        s[f * p.value_dim + j] += phi * p.v[r * p.value_dim + j];
      }
    }
  }
}

void head_backward(const HeadProblem& p, const double* grad_out, const HeadGradients& g) {
  const HeadRows rows = head_forward(p);
  const int64_t F = p.features, Dv = p.value_dim;
  std::vector<double> scaled(Dv);
  for (int64_t t = 0; t < p.queries; t++) {
    const double den = rows.den[t], maximum = rows.maximum[t];
    if (den == 0) continue;
    double c = 0;  // -(go . o) / den
    for (int64_t j = 0; j < Dv; j++) {
      scaled[j] = grad_out[t * Dv + j] / den;
      c -= scaled[j] * rows.out[t * Dv + j];
    }
    for (int64_t f = 0; f < F; f++) {
      const double factor = state_factor(p, t, f, maximum);
      double along = c * p.z0[f];
      for (int64_t j = 0; j < Dv; j++) {
        along += scaled[j] * p.s0[f * Dv + j];
        g.s0[f * Dv + j] += factor * scaled[j];
      }
      g.z0[f] += factor * c;
      if (p.has_state(f)) g.q[t * F + f] += p.exponents ? along * factor : along;
    }
    for (int64_t s = 0; s < p.visible(t); s++) {
      if (!p.keep[s]) continue;
      double along = c, weight = 0;  // d loss / d weight_ts, weight_ts
      for (int64_t j = 0; j < Dv; j++) along += scaled[j] * p.v[s * Dv + j];
      for (int64_t f = 0; f < F; f++) {
        const double w = pair(p, t, s, f, maximum);
        weight += w;
        g.q[t * F + f] += along * (p.exponents ? w : p.k[s * F + f]);
        g.k[s * F + f] += along * (p.exponents ? w : p.q[t * F + f]);
      }
      for (int64_t j = 0; j < Dv; j++) g.v[s * Dv + j] += weight * scaled[j];
    }
  }
}

void head_state_backward(const HeadProblem& p, const double* m, const double* gs, const double* gz,
                         const HeadGradients& g) {
  const int64_t F = p.features, Dv = p.value_dim;
  for (int64_t f = 0; f < F; f++) {
    const double old = p.exponents ? std::exp(p.m0[f] - m[f]) : 1;
    g.z0[f] += gz[f] * old;
    for (int64_t j = 0; j < Dv; j++) g.s0[f * Dv + j] += gs[f * Dv + j] * old;
    for (int64_t s = 0; s < p.keys; s++) {
      if (!p.keep[s]) continue;
      const double k = p.k[s * F + f], phi = p.exponents ? std::exp(k - m[f]) : k;
      double along = gz[f];
      for (int64_t j = 0; j < Dv; j++) {
        along += gs[f * Dv + j] * p.v[s * Dv + j];
        g.v[s * Dv + j] += phi * gs[f * Dv + j];
      }
      g.k[s * F + f] += p.exponents ? along * phi : along;
    }
  }
}

}  // namespace hedgerow::kernels::reference
