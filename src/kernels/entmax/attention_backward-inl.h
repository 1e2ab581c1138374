// Gradients of one head's rows, a tile of queries at a time. Where supports are small each row is a
// list of keys, kept by the forward or selected again by its threshold; where they are large the
// tile's weights are computed again and multiplied as tiles. Include after hwy/foreach_target.h.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_ENTMAX_ATTENTION_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_ENTMAX_ATTENTION_BACKWARD_INL_H_
#undef HEDGEROW_KERNELS_ENTMAX_ATTENTION_BACKWARD_INL_H_
#else
#define HEDGEROW_KERNELS_ENTMAX_ATTENTION_BACKWARD_INL_H_
#endif

#include "base/counter_rng.h"
#include "kernels/entmax/attention_curves-inl.h"
#include "kernels/entmax/attention_gradient-inl.h"
#include "kernels/entmax/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {

class EntmaxBackward {
 public:
  EntmaxBackward(const EntmaxAttentionParams& p, const EntmaxGradients& g,
                 EntmaxBackwardScratch& scratch)
      : p_(p),
        g_(g),
        scratch_(scratch),
        list_(scratch.list),
        lanes_(float_lanes()),
        head_(p, scratch.head),
        scores_(p, scratch.tile) {
    key_stride_ = round_up(p.width, lanes_);
    value_stride_ = head_.value_stride();
    reserve_list(list_, p.keys);
    keys_ = list_.keys.data();
    weights_ = list_.weights.data();
    dscores_ = list_.scores.data();
    q_ = reserve(scratch.q, kRowTile * key_stride_);
    grad_out_ = reserve(scratch.grad_out, kRowTile * value_stride_);
    dweights_ = reserve(scratch.dweights, kRowTile * scores_.stride());
  }

  // Keys [0, end) of the head are those that its rows see.
  void set_head(int64_t b, int64_t kv_head, int64_t end) {
    b_ = b;
    kv_head_ = kv_head;
    num_panels_ = 0;
    head_.select(b, kv_head);
    head_.pack(end);
    float* rows = reserve(scratch_.key_rows, p_.keys * key_stride_);
    for (int64_t s = 0; s < end; s++) {
      float* row = rows + s * key_stride_;
      load_row(p_.dtype, row_pointer(p_.dtype, p_.k, b, kv_head, s), p_.width, key_stride_, 1.0f,
               row);
      // what is not finite reaches scores where it is visible; here it must not meet a dS of 0
      if (!all_finite(row, p_.width)) std::fill(row, row + key_stride_, 0.0f);
    }
  }

  // Score gradients of rows t0 .. + rows of head h, and their part of its gradient for alpha.
  // Either list(r, n) is called for each row in turn, while keys(), weights() (as dropped) and
  // dscores() hold its n entries, or dense() once, while weights(r) and dscores(r) hold them all.
  template <class List, class Dense>
  double tile(int64_t h, int64_t t0, int64_t rows, List list, Dense dense) {
    h_ = h;
    t0_ = t0;
    rows_ = rows;
    e_ = alpha_of(p_, h) - 1;
    load_rows();
    int64_t t[kRowTile], absent = 0;  // rows whose support is not kept
    double supported = 0, seen = 0;
    for (int64_t r = 0; r < rows; r++) {
      const KeptRow row = kept(r);
      supported += static_cast<double>(row.support());
      seen += static_cast<double>(visible(r));
      if (!row.complete()) t[absent++] = t0 + r;
    }
    double dalpha = 0;
    if (supported == 0) return dalpha;
    if (e_ <= entmax::kLambdaForm && supported > kDenseShare * seen) {
      for (int64_t r = 0; r < rows; r++) t[r] = t0 + r;
      scores_.compute(head_, b_, h_, t, rows);
      with_curve(e_, [&](const auto& curve) { dalpha = dense_tile(curve); });
      dense();
      return dalpha;
    }
    if (absent > 0) scores_.compute(head_, b_, h_, t, absent);
    int64_t at = 0;  // of t
    for (int64_t r = 0; r < rows; r++) {
      const KeptRow row = kept(r);
      const int64_t n = row.complete() ? copy_row(row) : select_row(row, at++);
      if (n == 0) continue;
      dalpha += differentiate_row(r, n);
      list(r, n);
    }
    return dalpha;
  }

  // dq [row of the tile] += dS K, dk += dS^T Q, dv += W^T dO for a list.
  void accumulate_list(int64_t r, int64_t n, float* dq, float* dk, float* dv) const {
    for_vec_panels(key_stride_ / lanes_, [&](auto nv, int64_t j) HEDGEROW_FUNCTOR {
      constexpr int kVecs = decltype(nv)::value;
      const int64_t at = j * lanes_;
      add_rows<kVecs>(scratch_.key_rows.data() + at, key_stride_, keys_, dscores_, n,
                      dq + r * key_stride_ + at);
      add_to_rows<kVecs>(q_ + r * key_stride_ + at, keys_, dscores_, n, key_stride_, dk + at);
    });
    for_vec_panels(value_stride_ / lanes_, [&](auto nv, int64_t j) HEDGEROW_FUNCTOR {
      const int64_t at = j * lanes_;
      add_to_rows<decltype(nv)::value>(grad_out_ + r * value_stride_ + at, keys_, weights_, n,
                                       value_stride_, dv + at);
    });
  }

  // The same for a dense tile.
  void accumulate_dense(float* dq, float* dk, float* dv) {
    accumulate_keys(dweights_, q_, key_stride_, dk);
    accumulate_keys(scores_.scores(0), grad_out_, value_stride_, dv);
    for_vec_panels(key_stride_ / lanes_, [&](auto nv, int64_t j) HEDGEROW_FUNCTOR {
      for_row_tiles(rows_, [&](auto mr, int64_t r) HEDGEROW_FUNCTOR {
        gemm_tile<decltype(mr)::value, decltype(nv)::value>(
            visible(r + decltype(mr)::value - 1), dscores(r), scores_.stride(), 1,
            scratch_.key_rows.data() + j * lanes_, key_stride_, dq + r * key_stride_ + j * lanes_,
            key_stride_, true);
      });
    });
  }

  const int32_t* keys() const { return keys_; }
  const float* dscores() const { return dscores_; }
  const float* dscores(int64_t r) const { return dweights_ + r * scores_.stride(); }
  int64_t visible(int64_t r) const { return causal_keys(p_, t0_ + r); }
  int64_t key_stride() const { return key_stride_; }
  int64_t value_stride() const { return value_stride_; }

 private:
  KeptRow kept(int64_t r) const { return KeptRow(p_, g_.support, b_, h_, t0_ + r); }

  void load_rows() {
    for (int64_t r = 0; r < rows_; r++) {
      float* q = q_ + r * key_stride_;
      float* go = grad_out_ + r * value_stride_;
      if (kept(r).support() == 0) {  // whatever lies there stays out of sums
        std::fill(q, q + key_stride_, 0.0f);
        std::fill(go, go + value_stride_, 0.0f);
        continue;
      }
      load_row(p_.dtype, row_pointer(p_.dtype, p_.q, b_, h_, t0_ + r), p_.width, key_stride_,
               static_cast<float>(p_.scale), q);
      load_row(p_.dtype, row_pointer(p_.dtype, g_.grad_out, b_, h_, t0_ + r), p_.value_width,
               value_stride_, 1.0f, go);
    }
  }

  int64_t copy_row(const KeptRow& row) {
    const int64_t n = row.support();
    for (int64_t i = 0; i < n; i++) keys_[i] = static_cast<int32_t>(row.key(i));
    std::copy(row.weights(), row.weights() + n, weights_);
    return n;
  }

  // The support of row `at` of scores_, by its threshold.
  int64_t select_row(const KeptRow& row, int64_t at) {
    const float* z = scores_.scores(at);
    if (e_ > entmax::kLambdaForm) {
      const entmax::Threshold<double> threshold = row.threshold<double>();
      return list_support(z, scores_.padded(at), row.threshold<float>().z_min,
                          [&](float score) { return threshold.weight(score); });
    }
    int64_t n = 0;
    with_curve(e_, [&](const auto& curve) HEDGEROW_FUNCTOR {
      const entmax::Threshold<float> threshold = row.threshold<float>();
      const float least = lowest_candidate(threshold.max, threshold.shift, curve.width());
      n = select_keys(z, scores_.padded(at), least, list_.bits.data(), keys_);
      for (int64_t i = 0; i < n; i++) weights_[i] = z[keys_[i]];
      std::fill(weights_ + n, weights_ + round_up(n, lanes_), -kInfinity);
      weigh(curve, weights_, round_up(n, lanes_), threshold.max, threshold.shift);
    });
    return drop_zeros(n);
  }

  // Entries of z from `least` up whose weight(z) is not 0.
  template <class Weight>
  int64_t list_support(const float* z, int64_t padded, float least, Weight weight) {
    const float below = std::nextafter(least, -kInfinity);
    const int64_t n = select_keys(z, padded, below, list_.bits.data(), keys_);
    for (int64_t i = 0; i < n; i++) weights_[i] = static_cast<float>(weight(z[keys_[i]]));
    return drop_zeros(n);
  }

  int64_t drop_zeros(int64_t n) {
    int64_t support = 0;
    for (int64_t i = 0; i < n; i++) {
      weights_[support] = weights_[i];
      keys_[support] = keys_[i];
      support += weights_[i] > 0;
    }
    return support;
  }

  // dscores_ from the n entries of row r; weights_ become those that the values saw.
  double differentiate_row(int64_t r, int64_t n) {
    float* dw = dscores_;
    dot_rows(head_.value(0), value_stride_, keys_, n, grad_out_ + r * value_stride_, dw);
    for (const int64_t s : head_.bad_values()) {
      const int32_t* at = std::lower_bound(keys_, keys_ + n, static_cast<int32_t>(s));
      if (at < keys_ + n && *at == s) dw[at - keys_] = std::nanf("");
    }
    const bool dropped = p_.dropout_p > 0;
    float* factor = list_.dropped.data();
    if (dropped) {
      for (int64_t i = 0; i < n; i++) {
        factor[i] = dropout(r, keys_[i]);
        dw[i] = factor[i] == 0 ? 0.0f : factor[i] * dw[i];
      }
    }
    const bool wanted = g_.dalpha != nullptr;
    const double dalpha =
        e_ > entmax::kLambdaForm
            ? differentiate_wide(alpha_of(p_, h_), weights_, dw, n, list_)
            : differentiate_list(static_cast<float>(e_), weights_, dw, n, list_.s.data(), wanted);
    for (int64_t i = 0; dropped && i < n; i++) weights_[i] *= factor[i];
    return dalpha;
  }

  float dropout(int64_t r, int64_t s) const {
    const uint64_t key = dropout_row_key(p_.dropout_seed, b_, h_, t0_ + r);
    const bool keep = dropout_bits(key, s) >= dropout_threshold(p_.dropout_p);
    return keep ? static_cast<float>(1.0 / (1.0 - p_.dropout_p)) : 0.0f;
  }

  // V^T panels up to the tile's last key.
  const float* value_panels() {
    const int64_t pw = panel_width(), end = round_up(visible(rows_ - 1), pw);
    float* panels = reserve(scratch_.value_panels, round_up(p_.keys, pw) * p_.value_width);
    if (num_panels_ < end / pw) {
      pack_panels(p_.dtype, p_.v, b_, kv_head_, num_panels_ * pw, std::min(end, p_.keys),
                  p_.value_width, panels,
                  reserve(scratch_.head.staging, pw * std::max(p_.width, p_.value_width)));
      num_panels_ = end / pw;
    }
    return panels;
  }

  // Weights of the tile over its scores, score gradients to dweights_.
  template <class Curve>
  double dense_tile(const Curve& curve) {
    const int64_t pw = panel_width(), stride = scores_.stride(), end = visible(rows_ - 1);
    const float* panels = value_panels();
    for (int64_t s = 0; s < end; s += pw) {
      int64_t first = 0;
      while (visible(first) <= s) first++;
      gemm(rows_ - first, kTileVecs, p_.value_width, grad_out_ + first * value_stride_,
           value_stride_, 1, panels + s * p_.value_width, pw, dweights_ + first * stride + s,
           stride, false);
    }
    double dalpha = 0;
    for (int64_t r = 0; r < rows_; r++) {
      float* w = scores_.scores(r);
      float* dw = dweights_ + r * stride;
      const entmax::Threshold<float> threshold = kept(r).template threshold<float>();
      const int64_t n = kept(r).support() == 0 ? 0 : scores_.padded(r);
      if (n > 0 && p_.dropout_p > 0) {
        for (int64_t s = 0; s < visible(r); s++) {
          const float factor = dropout(r, s);
          dw[s] = factor == 0 ? 0.0f : factor * dw[s];
        }
      }
      if (n > 0) {
        dalpha += differentiate_dense(curve, static_cast<float>(e_), threshold.max, threshold.shift,
                                      w, dw, n, list_.s.data(), g_.dalpha != nullptr);
      }
      if (n > 0 && p_.dropout_p > 0) {
        for (int64_t s = 0; s < visible(r); s++) w[s] *= dropout(r, s);
      }
      const int64_t last = scores_.padded(rows_ - 1);
      std::fill(w + n, w + last, 0.0f);
      std::fill(dw + n, dw + last, 0.0f);
    }
    return dalpha;
  }

  // to[key][stride] += X^T Y over the tile's queries, from the first that sees the key.
  void accumulate_keys(const float* x, const float* y, int64_t stride, float* to) const {
    const int64_t x_stride = scores_.stride();
    for_vec_panels(stride / lanes_, [&](auto nv, int64_t j) HEDGEROW_FUNCTOR {
      for_row_tiles(visible(rows_ - 1), [&](auto mr, int64_t s) HEDGEROW_FUNCTOR {
        int64_t first = 0;
        if (p_.is_causal) {
          first = std::clamp<int64_t>(s - (p_.keys - p_.queries) - t0_, 0, rows_);
        }
        gemm_tile<decltype(mr)::value, decltype(nv)::value>(
            rows_ - first, x + first * x_stride + s, 1, x_stride, y + first * stride + j * lanes_,
            stride, to + s * stride + j * lanes_, stride, true);
      });
    });
  }

  const EntmaxAttentionParams& p_;
  const EntmaxGradients& g_;
  EntmaxBackwardScratch& scratch_;
  ListScratch& list_;
  int64_t lanes_, key_stride_ = 0, value_stride_ = 0;
  PackedHead head_;
  ScoreTile scores_;
  int64_t b_ = 0, kv_head_ = 0, h_ = 0, t0_ = 0, rows_ = 0, num_panels_ = 0;
  double e_ = 0;
  int32_t* keys_;
  float *weights_, *dscores_, *q_, *grad_out_, *dweights_;
};

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_ENTMAX_ATTENTION_BACKWARD_INL_H_
