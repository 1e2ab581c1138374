// Inputs, masks and gradients of one AttentionCase as plain arrays, wrapped for the kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "hedgerow/kernels/softmax.h"
#include "kernels/common/elements.h"
#include "testing/attention_cases.h"
#include "testing/random.h"

namespace hedgerow::testing_support {

// A [B, H, rows, width] tensor with its own storage: contiguous, or laid out [B, rows, H, width].
class HostTensor {
 public:
  HostTensor(kernels::DType dtype, int64_t batch, int64_t heads, int64_t rows, int64_t width,
             bool rows_first)
      : dtype_(dtype),
        batch_(batch),
        heads_(heads),
        rows_(rows),
        width_(width),
        rows_first_(rows_first) {
    bytes_.assign(size() * kernels::element_bytes(dtype), 0xff);  // NaN until written
  }
  int64_t size() const { return batch_ * heads_ * rows_ * width_; }
  int64_t rows() const { return rows_; }
  int64_t width() const { return width_; }
  kernels::ConstTensor view() const { return strided<kernels::ConstTensor>(bytes_.data()); }
  kernels::MutTensor mut() {
    return strided<kernels::MutTensor>(const_cast<unsigned char*>(bytes_.data()));
  }
  double get(int64_t b, int64_t h, int64_t r, int64_t d) const {
    return kernels::load_element(dtype_, bytes_.data(), index(b, h, r) + d);
  }
  void set(int64_t b, int64_t h, int64_t r, int64_t d, double x) {
    kernels::store_element(dtype_, bytes_.data(), index(b, h, r) + d, x);
  }
  void set_row(int64_t b, int64_t h, int64_t r, double x) {
    for (int64_t d = 0; d < width_; d++) set(b, h, r, d, x);
  }
  void randomise(uint64_t seed, double scale = 1.0) {
    int64_t i = 0;
    for_each([&](int64_t b, int64_t h, int64_t r, int64_t d) {
      set(b, h, r, d, scale * normal(seed, i++));
    });
  }
  template <class F>
  void for_each(F f) const {
    for (int64_t b = 0; b < batch_; b++)
      for (int64_t h = 0; h < heads_; h++)
        for (int64_t r = 0; r < rows_; r++)
          for (int64_t d = 0; d < width_; d++) f(b, h, r, d);
  }
  double max_abs() const {
    double m = 0;
    for_each([&](int64_t b, int64_t h, int64_t r, int64_t d) {
      const double x = std::fabs(get(b, h, r, d));
      m = x > m || std::isnan(x) ? x : m;
    });
    return m;
  }
  double max_difference(const HostTensor& other) const {  // NaN if any is
    double m = 0;
    for_each([&](int64_t b, int64_t h, int64_t r, int64_t d) {
      const double x = std::fabs(get(b, h, r, d) - other.get(b, h, r, d));
      if (std::isnan(m)) return;
      m = x > m || std::isnan(x) ? x : m;
    });
    return m;
  }
  bool same_bits(const HostTensor& other) const { return bytes_ == other.bytes_; }

 private:
  template <class View>
  View strided(decltype(View::data) data) const {
    if (rows_first_) return {data, rows_ * heads_ * width_, width_, heads_ * width_};
    return {data, heads_ * rows_ * width_, rows_ * width_, width_};
  }
  int64_t index(int64_t b, int64_t h, int64_t r) const {
    return kernels::row_index(view(), b, h, r);
  }

  kernels::DType dtype_;
  int64_t batch_, heads_, rows_, width_;
  bool rows_first_;
  std::vector<unsigned char> bytes_;
};

// The mask of a case, and room for its gradient.
struct HostMask {
  std::vector<uint8_t> keep;
  std::vector<float> add, grad;
  int64_t strides[4] = {};
  kernels::MaskKind kind = kernels::MaskKind::kNone;

  explicit HostMask(const AttentionCase& c) {
    using M = MaskForm;
    if (c.mask == M::kNone) return;
    const bool full = c.mask == M::kBool || c.mask == M::kFloat;
    const bool per_batch = full || c.mask == M::kKeyPadding || c.mask == M::kLowest;
    const bool per_head = full || c.mask == M::kFloatPerHead;
    const bool per_query = full || c.mask == M::kFloatPerPair;
    int64_t size = c.keys;
    strides[3] = 1;
    if (per_query) strides[2] = size, size *= c.queries;
    if (per_head) strides[1] = size, size *= c.heads;
    if (per_batch) strides[0] = size, size *= c.batch;
    const bool boolean = c.mask == M::kBool || c.mask == M::kKeyPadding;
    kind = boolean ? kernels::MaskKind::kBool : kernels::MaskKind::kFloat32;
    keep.resize(boolean ? size : 0);
    add.resize(boolean ? 0 : size);
    grad.assign(add.size(), std::numeric_limits<float>::quiet_NaN());
    for (int64_t i = 0; i < size; i++) fill(c, i);
  }
  kernels::Mask view() const {
    const void* data = keep.empty() ? static_cast<const void*>(add.data()) : keep.data();
    return {kind, data, strides[0], strides[1], strides[2], strides[3]};
  }
  kernels::MaskGradient gradient() {
    if (kind != kernels::MaskKind::kFloat32) return {};
    return {grad.data(), strides[0], strides[1], strides[2], strides[3]};
  }

 private:
  void fill(const AttentionCase& c, int64_t i) {
    const int64_t s = i % c.keys, row = i / c.keys;
    const bool empty = strides[2] != 0 && strides[0] != 0 && row % c.queries % 7 == 3;
    switch (c.mask) {
      case MaskForm::kKeyPadding:
        keep[i] = s < c.keys - row * (c.keys / 3);
        break;
      case MaskForm::kBool:
        keep[i] = !empty && uniform(91, i) < 0.7;
        break;
      case MaskForm::kLowest:
        add[i] = row == c.batch - 1 || s % 5 == 2 ? std::numeric_limits<float>::lowest() : 0.0f;
        break;
      default:
        add[i] = empty || uniform(92, i) < 0.2 ? -std::numeric_limits<float>::infinity()
                                               : static_cast<float>(normal(93, i));
    }
  }
};

// Inputs, outputs and gradients of a case. Outputs start as NaN.
struct AttentionData {
  AttentionCase c;
  HostMask mask;
  HostTensor q, k, v, out, grad_out, dq, dk, dv;
  std::vector<float> lse;

  explicit AttentionData(const AttentionCase& which,
                         kernels::DType dtype = kernels::DType::kFloat32, bool rows_first = false)
      : c(which),
        mask(c),
        q(dtype, c.batch, c.heads, c.queries, c.width, rows_first),
        k(dtype, c.batch, c.kv_heads, c.keys, c.width, rows_first),
        v(dtype, c.batch, c.kv_heads, c.keys, c.value_width, rows_first),
        out(dtype, c.batch, c.heads, c.queries, c.value_width, rows_first),
        grad_out(out),
        dq(q),
        dk(k),
        dv(v),
        lse(c.batch * c.heads * c.queries, std::numeric_limits<float>::quiet_NaN()) {
    dtype_ = dtype;
    q.randomise(1, c.query_scale);
    k.randomise(2);
    v.randomise(3);
    grad_out.randomise(4);
  }
  kernels::SoftmaxParams params() const {
    kernels::SoftmaxParams p;
    p.dtype = dtype_;
    p.batch = c.batch;
    p.heads = c.heads;
    p.kv_heads = c.kv_heads;
    p.queries = c.queries;
    p.keys = c.keys;
    p.width = c.width;
    p.value_width = c.value_width;
    p.q = q.view();
    p.k = k.view();
    p.v = v.view();
    p.mask = mask.view();
    p.is_causal = c.is_causal;
    p.scale = c.width > 0 ? 1.0 / std::sqrt(static_cast<double>(c.width)) : 1.0;
    p.dropout_p = c.dropout_p;
    p.dropout_seed = 77;
    return p;
  }
  kernels::SoftmaxGradients gradients() {
    return {out.view(), lse.data(), grad_out.view(), dq.mut(), dk.mut(), dv.mut(), mask.gradient()};
  }

 private:
  kernels::DType dtype_;
};

}  // namespace hedgerow::testing_support
