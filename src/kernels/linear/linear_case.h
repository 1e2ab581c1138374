// Test data of the linear attention kernels: one case, its tensors, and a run through either the
// public functions or the references.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "hedgerow/kernels/linear.h"
#include "kernels/common/elements.h"
#include "kernels/linear/linear_reference.h"
#include "testing/random.h"

namespace hedgerow::kernels::linear_test {

struct Case {
  std::string name;
  FeatureMap map = FeatureMap::kExp;
  bool given = false;  // linear attention over features of width D
  bool causal = true;
  int64_t B = 1, H = 2, Hkv = 2, T = 65, S = 65, D = 16, E = 16, Dv = 16;
  double scale = 1;  // of q and k
  bool bias = false, mask = false, state = false;
  DType dtype = DType::kFloat32;
  bool token_major = false;  // [B, T, H, D] storage
  int64_t F() const { return given ? D : feature_width(map, E); }
};

// Elements of one dtype, filled with NaN until set.
struct Array {
  DType dtype = DType::kFloat32;
  std::vector<char> bytes;
  int64_t size = 0;
  Array() = default;
  Array(DType type, int64_t n) : dtype(type), bytes(n * element_bytes(type) + 64), size(n) {
    for (int64_t i = 0; i < n; i++) set(i, std::numeric_limits<double>::quiet_NaN());
  }
  double get(int64_t i) const { return load_element(dtype, bytes.data(), i); }
  void set(int64_t i, double x) { store_element(dtype, bytes.data(), i, x); }
  void* data() { return size ? bytes.data() : nullptr; }
  double max_abs() const {
    double top = 0;
    for (int64_t i = 0; i < size; i++) {
      if (!std::isnan(get(i))) top = std::max(top, std::abs(get(i)));
    }
    return top;
  }
};

inline Array random_array(DType dtype, int64_t n, uint64_t seed, double scale) {
  Array a(dtype, n);
  for (int64_t i = 0; i < n; i++) a.set(i, scale * testing_support::normal(seed, i));
  return a;
}

inline ConstTensor tensor(Array& a, bool token_major, int64_t h, int64_t rows, int64_t width) {
  if (token_major) return ConstTensor{a.data(), rows * h * width, width, h * width};
  return ConstTensor{a.data(), h * rows * width, rows * width, width};
}
inline MutTensor mut_tensor(Array& a, bool token_major, int64_t h, int64_t rows, int64_t width) {
  const ConstTensor t = tensor(a, token_major, h, rows, width);
  return MutTensor{a.data(), t.batch_stride, t.head_stride, t.row_stride};
}

struct Inputs {
  Array q, k, v, wq, wk, bq, bk, s, z, m, go, gs, gz;
  std::vector<uint8_t> mask;

  explicit Inputs(const Case& c, uint64_t seed = 7) {
    const DType state = c.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    const int64_t F = c.F();
    q = random_array(c.dtype, c.B * c.H * c.T * c.D, seed + 1, c.scale);
    k = random_array(c.dtype, c.B * c.Hkv * c.S * c.D, seed + 2, c.scale);
    v = random_array(c.dtype, c.B * c.Hkv * c.S * c.Dv, seed + 3, 1);
    const double spread = 1 / std::sqrt(static_cast<double>(c.D));
    wq = random_array(c.dtype, c.H * c.D * c.E, seed + 4, spread);
    wk = random_array(c.dtype, c.Hkv * c.D * c.E, seed + 5, spread);
    bq = random_array(c.dtype, c.H * c.E, seed + 6, 0.3);
    bk = random_array(c.dtype, c.Hkv * c.E, seed + 7, 0.3);
    s = random_array(state, c.B * c.Hkv * F * c.Dv, seed + 8, 1);
    z = random_array(state, c.B * c.Hkv * F, seed + 9, 1);
    m = random_array(state, c.B * c.Hkv * F, seed + 10, c.scale);
    go = random_array(c.dtype, c.B * c.H * c.T * c.Dv, seed + 11, 1);
    gs = random_array(state, c.B * c.Hkv * F * c.Dv, seed + 12, 0.1);
    gz = random_array(state, c.B * c.Hkv * F, seed + 13, 0.1);
    for (int64_t i = 0; i < z.size; i++) z.set(i, 0.5 + std::abs(z.get(i)));
    if (c.given) {
      for (Array* a : {&q, &k}) {
        for (int64_t i = 0; i < a->size; i++) a->set(i, std::abs(a->get(i)));
      }
    }
    mask.assign(c.B * c.S, 1);
    if (!c.mask) return;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (int64_t b = 0; b < c.B; b++) {
      for (int64_t r = 0; r < c.S; r++) {
        mask[b * c.S + r] = testing_support::uniform(seed + 14, b * c.S + r) < 0.6 && r > 1;
        if (mask[b * c.S + r]) continue;
        for (int64_t h = 0; h < c.Hkv; h++) {  // removed keys are never read
          for (int64_t i = 0; i < c.D; i++) k.set(index(c, b, h, r, c.D) + i, nan);
          for (int64_t i = 0; i < c.Dv; i++) v.set(index(c, b, h, r, c.Dv) + i, nan);
        }
      }
    }
  }

  static int64_t index(const Case& c, int64_t b, int64_t h, int64_t r, int64_t width) {
    return c.token_major ? ((b * c.S + r) * c.Hkv + h) * width
                         : ((b * c.Hkv + h) * c.S + r) * width;
  }
};

struct Outputs {
  Array out, inv, exponent, s, z, m;
  Array dq, dk, dv, dwq, dwk, dbq, dbk, ds, dz;
};

template <typename P>
void fill(P& p, const Case& c, Inputs& in) {
  p.dtype = c.dtype;
  p.is_causal = c.causal;
  p.batch = c.B;
  p.heads = c.H;
  p.kv_heads = c.Hkv;
  p.queries = c.T;
  p.keys = c.S;
  p.value_dim = c.Dv;
  p.v = tensor(in.v, c.token_major, c.Hkv, c.S, c.Dv);
  if (c.mask) p.key_mask = KeyMask{in.mask.data(), c.S, 1};
  if (c.state) {
    p.s_in = in.s.data();
    p.z_in = in.z.data();
  }
}
template <typename P>
void fill_maps(P& p, const Case& c, Inputs& in) {
  p.map = c.map;
  p.dim = c.D;
  p.width = c.E;
  p.q = tensor(in.q, c.token_major, c.H, c.T, c.D);
  p.k = tensor(in.k, c.token_major, c.Hkv, c.S, c.D);
  p.wq = in.wq.data();
  p.wk = in.wk.data();
  if (c.bias) {
    p.bq = in.bq.data();
    p.bk = in.bk.data();
  }
  if (c.state) p.m_in = in.m.data();
}
template <typename P>
void fill_features(P& p, const Case& c, Inputs& in) {
  p.features = c.D;
  p.phi_q = tensor(in.q, c.token_major, c.H, c.T, c.D);
  p.phi_k = tensor(in.k, c.token_major, c.Hkv, c.S, c.D);
}

inline void forward(const Case& c, Inputs& in, Outputs& o, bool use_reference) {
  const DType state = c.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const int64_t F = c.F();
  o.out = Array(c.dtype, c.B * c.H * c.T * c.Dv);
  o.inv = Array(state, c.B * c.H * c.T);
  o.exponent = Array(state, c.B * c.H * c.T);
  o.s = Array(state, c.B * c.Hkv * F * c.Dv);
  o.z = Array(state, c.B * c.Hkv * F);
  o.m = Array(state, c.B * c.Hkv * F);
  auto outputs = [&](auto& p) {
    p.out = mut_tensor(o.out, c.token_major, c.H, c.T, c.Dv);
    p.inv_den = o.inv.data();
    p.s_out = o.s.data();
    p.z_out = o.z.data();
  };
  if (c.given) {
    LinearForward p;
    fill(p, c, in);
    fill_features(p, c, in);
    outputs(p);
    for (int64_t i = 0; i < o.m.size; i++) o.m.set(i, 0);
    use_reference ? reference::linear_attention_forward(p) : linear_attention_forward(p);
    return;
  }
  HedgehogForward p;
  fill(p, c, in);
  fill_maps(p, c, in);
  outputs(p);
  p.m_out = o.m.data();
  p.row_exponent = o.exponent.data();
  use_reference ? reference::hedgehog_attention_forward(p) : hedgehog_attention_forward(p);
}

// After forward() with the same outputs. with_final: a gradient comes for the final state too.
inline void backward(const Case& c, Inputs& in, Outputs& o, bool use_reference, bool with_final) {
  o.dq = Array(c.dtype, in.q.size);
  o.dk = Array(c.dtype, in.k.size);
  o.dv = Array(c.dtype, in.v.size);
  o.ds = Array(in.s.dtype, in.s.size);
  o.dz = Array(in.z.dtype, in.z.size);
  o.dwq = Array(c.dtype, in.wq.size);
  o.dwk = Array(c.dtype, in.wk.size);
  o.dbq = Array(c.dtype, in.bq.size);
  o.dbk = Array(c.dtype, in.bk.size);
  auto common = [&](auto& p) {
    p.out = tensor(o.out, c.token_major, c.H, c.T, c.Dv);
    p.inv_den = o.inv.data();
    p.grad_out = tensor(in.go, c.token_major, c.H, c.T, c.Dv);
    p.grad_v = mut_tensor(o.dv, c.token_major, c.Hkv, c.S, c.Dv);
    if (with_final) {
      p.grad_s_out = in.gs.data();
      p.grad_z_out = in.gz.data();
    }
    if (c.state) {
      p.grad_s_in = o.ds.data();
      p.grad_z_in = o.dz.data();
    }
  };
  if (c.given) {
    LinearBackward p;
    fill(p, c, in);
    fill_features(p, c, in);
    common(p);
    p.grad_phi_q = mut_tensor(o.dq, c.token_major, c.H, c.T, c.D);
    p.grad_phi_k = mut_tensor(o.dk, c.token_major, c.Hkv, c.S, c.D);
    use_reference ? reference::linear_attention_backward(p) : linear_attention_backward(p);
    return;
  }
  HedgehogBackward p;
  fill(p, c, in);
  fill_maps(p, c, in);
  common(p);
  p.row_exponent = o.exponent.data();
  p.m_out = o.m.data();
  if (!with_final) {  // read what the forward left; elsewhere it is computed again
    p.s_out = o.s.data();
    p.z_out = o.z.data();
  }
  p.grad_q = mut_tensor(o.dq, c.token_major, c.H, c.T, c.D);
  p.grad_k = mut_tensor(o.dk, c.token_major, c.Hkv, c.S, c.D);
  p.grad_wq = o.dwq.data();
  p.grad_wk = o.dwk.data();
  if (c.bias) {
    p.grad_bq = o.dbq.data();
    p.grad_bk = o.dbk.data();
  }
  use_reference ? reference::hedgehog_attention_backward(p) : hedgehog_attention_backward(p);
}

}  // namespace hedgerow::kernels::linear_test
