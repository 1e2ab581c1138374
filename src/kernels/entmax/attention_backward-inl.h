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

#include "kernels/entmax/attention_curves-inl.h"
#include "kernels/entmax/attention_gradient-inl.h"
#include "kernels/entmax/attention_pairs-inl.h"
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
        list_(scratch.list),
        lanes_(float_lanes()),
        key_panels_(p.dtype, p.k, p.keys, p.width, scratch.keys),
        value_panels_(p.dtype, p.v, p.keys, p.value_width, scratch.values),
        key_rows_(p.dtype, p.k, p.keys, p.width, scratch.key_rows),
        value_rows_(p.dtype, p.v, p.keys, p.value_width, scratch.value_rows),
        scores_(p, scratch.tile),
        pairs_(p.keys, scratch.pairs) {
    key_width_ = key_rows_.padded();
    value_width_ = value_rows_.padded();
    reserve_lists(list_, p.keys);
    q_ = reserve(scratch.q, kPairRows * key_width_);
    grad_out_ = reserve(scratch.grad_out, kPairRows * value_width_);
    dweights_ = reserve(scratch.dweights, kRowTile * scores_.stride());
  }

  // Keys [0, end) of the head are those that its rows see.
  void set_head(int64_t b, int64_t kv_head, int64_t end) {
    b_ = b;
    for (HeadPanels* x : {&key_panels_, &value_panels_}) x->select(b, kv_head);
    for (HeadRows* x : {&key_rows_, &value_rows_}) x->select(b, kv_head);
    k_ = key_rows_.pack(end);
    v_ = value_rows_.pack(end);
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
    if (e_ <= entmax::kLambdaForm && supported > kDenseShareBackward * seen) {
      for (int64_t r = 0; r < rows; r++) t[r] = t0 + r;
      scores_.compute(key_panels_, b_, h_, t, rows);
      with_curve(e_, [&](const auto& curve) { dalpha = dense_tile(curve); });
      dense();
      return dalpha;
    }
    if (absent > 0) scores_.compute(key_panels_, b_, h_, t, absent);
    int64_t at = 0;  // of t
    for (int64_t r = 0; r < rows; r++) {
      const KeptRow row = kept(r);
      keys_ = pairs_.keys();
      weights_ = pairs_.weights();
      dscores_ = pairs_.dscores();
      if (row.complete()) row.load(keys_, weights_);
      const int64_t n = row.complete() ? row.support() : select_row(row, at++);
      if (n == 0) continue;
      dalpha += differentiate_row(r, n);
      list(r, n);
    }
    return dalpha;
  }

  // dq [row of the tile] += dS K for a list, whose pairs wait for what goes to dk and dv.
  void accumulate_list(int64_t r, int64_t n, float* dq) {
    for_vec_panels(key_width_ / lanes_, [&](auto nv, int64_t j) HEDGEROW_FUNCTOR {
      add_rows<decltype(nv)::value>(k_ + j * lanes_, key_rows_.stride(), keys_, dscores_, n,
                                    dq + r * key_width_ + j * lanes_);
    });
    pairs_.append(tile_row_ + r, n);
  }

  // The tile's lists are done: dk += dS^T Q, dv += W^T dO once enough of them are, or at the last.
  void end_tile(const GradientRows& dk, const GradientRows& dv, bool last) {
    tile_row_ += rows_;
    if (!last && !pairs_.full() && tile_row_ + kRowTile <= kPairRows) return;
    pairs_.flush({q_, key_width_}, {grad_out_, value_width_}, dk, dv, key_width_, value_width_);
    tile_row_ = 0;
  }

  // dq += dS K, dk += dS^T Q, dv += W^T dO for a dense tile.
  void accumulate_dense(float* dq, const GradientRows& dk, const GradientRows& dv) {
    accumulate_keys(dweights_, q(0), key_width_, dk);
    accumulate_keys(scores_.scores(0), grad_out(0), value_width_, dv);
    const float* k = key_rows_.pack_clean(visible(rows_ - 1));
    for_vec_panels(key_width_ / lanes_, [&](auto nv, int64_t j) HEDGEROW_FUNCTOR {
      for_row_tiles(rows_, [&](auto mr, int64_t r) HEDGEROW_FUNCTOR {
        gemm_tile<decltype(mr)::value, decltype(nv)::value>(
            visible(r + decltype(mr)::value - 1), dscores(r), scores_.stride(), 1, k + j * lanes_,
            key_width_, dq + r * key_width_ + j * lanes_, key_width_, true);
      });
    });
  }

  const int32_t* keys() const { return keys_; }
  const float* dscores() const { return dscores_; }
  const float* dscores(int64_t r) const { return dweights_ + r * scores_.stride(); }
  int64_t visible(int64_t r) const { return causal_keys(p_, t0_ + r); }
  // Widths of q and v in whole vectors.
  int64_t key_width() const { return key_width_; }
  int64_t value_width() const { return value_width_; }

 private:
  float* q(int64_t r) const { return q_ + (tile_row_ + r) * key_width_; }
  float* grad_out(int64_t r) const { return grad_out_ + (tile_row_ + r) * value_width_; }
  KeptRow kept(int64_t r) const { return KeptRow(p_, g_.support, b_, h_, t0_ + r); }

  void load_rows() {
    for (int64_t r = 0; r < rows_; r++) {
      float* q = this->q(r);
      float* go = grad_out(r);
      if (kept(r).support() == 0) {  // whatever lies there stays out of sums
        std::fill(q, q + key_width_, 0.0f);
        std::fill(go, go + value_width_, 0.0f);
        continue;
      }
      load_row(p_.dtype, row_pointer(p_.dtype, p_.q, b_, h_, t0_ + r), p_.width, key_width_,
               static_cast<float>(p_.scale), q);
      load_row(p_.dtype, row_pointer(p_.dtype, g_.grad_out, b_, h_, t0_ + r), p_.value_width,
               value_width_, 1.0f, go);
    }
  }

  // The support of row `at` of scores_, by its threshold.
  int64_t select_row(const KeptRow& row, int64_t at) {
    const float* z = scores_.scores(at);
    if (e_ > entmax::kLambdaForm) {
      const entmax::Threshold<double> threshold = row.threshold<double>();
      const float below = std::nextafter(row.threshold<float>().z_min, -kInfinity);
      const int64_t n = select(z, scores_.padded(at), below);
      for (int64_t i = 0; i < n; i++) {
        weights_[i] = static_cast<float>(threshold.weight(z[keys_[i]]));
      }
      return drop_zeros(weights_, keys_, n);
    }
    int64_t n = 0;
    with_curve(e_, [&](const auto& curve) HEDGEROW_FUNCTOR {
      const entmax::Threshold<float> threshold = row.threshold<float>();
      const float least = lowest_candidate(threshold.max, threshold.shift, curve.width());
      n = select(z, scores_.padded(at), least);
      for (int64_t i = 0; i < n; i++) weights_[i] = z[keys_[i]];
      std::fill(weights_ + n, weights_ + round_up(n, lanes_), -kInfinity);
      weigh(curve, weights_, round_up(n, lanes_), threshold.max, threshold.shift);
    });
    return drop_zeros(weights_, keys_, n);
  }

  int64_t select(const float* z, int64_t padded, float least) {
    return select_keys(z, padded, least, list_.bits.data(), list_.words.data(), keys_);
  }

  // dscores_ from the n entries of row r; weights_ become those that the values saw.
  double differentiate_row(int64_t r, int64_t n) {
    float* dw = dscores_;
    dot_rows(v_, value_rows_.stride(), value_width_, keys_, n, grad_out(r), dw);
    const bool dropped = p_.dropout_p > 0;
    float* factor = list_.dropped.data();
    if (dropped) {
      const uint64_t key = row_key(r);
      for (int64_t i = 0; i < n; i++) {
        factor[i] = dropout_factor(p_, key, keys_[i]);
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

  uint64_t row_key(int64_t r) const { return dropout_row_key(p_.dropout_seed, b_, h_, t0_ + r); }

  // Weights of the tile over its scores, score gradients to dweights_.
  template <class Curve>
  double dense_tile(const Curve& curve) {
    const int64_t pw = panel_width(), stride = scores_.stride(), end = visible(rows_ - 1);
    value_panels_.pack(end);
    for (int64_t s = 0; s < end; s += pw) {
      int64_t first = 0;
      while (visible(first) <= s) first++;
      gemm(rows_ - first, kTileVecs, p_.value_width, grad_out(first), value_width_, 1,
           value_panels_.at(s), pw, dweights_ + first * stride + s, stride, false);
    }
    double dalpha = 0;
    for (int64_t r = 0; r < rows_; r++) {
      float* w = scores_.scores(r);
      float* dw = dweights_ + r * stride;
      const entmax::Threshold<float> threshold = kept(r).template threshold<float>();
      const int64_t n = kept(r).support() == 0 ? 0 : scores_.padded(r);
      const uint64_t key = row_key(r);
      if (n > 0 && p_.dropout_p > 0) {
        for (int64_t s = 0; s < visible(r); s++) {
          const float factor = dropout_factor(p_, key, s);
          dw[s] = factor == 0 ? 0.0f : factor * dw[s];
        }
      }
      if (n > 0) {
        dalpha += differentiate_dense(curve, static_cast<float>(e_), threshold.max, threshold.shift,
                                      w, dw, n, list_.s.data(), g_.dalpha != nullptr);
      }
      if (n > 0 && p_.dropout_p > 0) {
        for (int64_t s = 0; s < visible(r); s++) w[s] *= dropout_factor(p_, key, s);
      }
      const int64_t last = scores_.padded(rows_ - 1);
      std::fill(w + n, w + last, 0.0f);
      std::fill(dw + n, dw + last, 0.0f);
    }
    return dalpha;
  }

  // to[key] += X^T Y over the tile's queries, from the first that sees the key; Y is `width` wide.
  void accumulate_keys(const float* x, const float* y, int64_t width,
                       const GradientRows& to) const {
    const int64_t x_stride = scores_.stride();
    for_vec_panels(width / lanes_, [&](auto nv, int64_t j) HEDGEROW_FUNCTOR {
      for_row_tiles(visible(rows_ - 1), [&](auto mr, int64_t s) HEDGEROW_FUNCTOR {
        int64_t first = 0;
        if (p_.is_causal) {
          first = std::clamp<int64_t>(s - (p_.keys - p_.queries) - t0_, 0, rows_);
        }
        gemm_tile<decltype(mr)::value, decltype(nv)::value>(
            rows_ - first, x + first * x_stride + s, 1, x_stride, y + first * width + j * lanes_,
            width, to.data + s * to.stride + j * lanes_, to.stride, true);
      });
    });
  }

  const EntmaxAttentionParams& p_;
  const EntmaxGradients& g_;
  ListScratch& list_;
  int64_t lanes_, key_width_ = 0, value_width_ = 0;
  HeadPanels key_panels_, value_panels_;
  HeadRows key_rows_, value_rows_;
  ScoreTile scores_;
  PairBlock pairs_;
  const float *k_ = nullptr, *v_ = nullptr;
  int64_t b_ = 0, h_ = 0, t0_ = 0, rows_ = 0;
  int64_t tile_row_ = 0;  // first row of the tile in q_ and grad_out_
  double e_ = 0;
  int32_t* keys_ = nullptr;
  float *weights_ = nullptr, *dscores_ = nullptr;
  float *q_, *grad_out_, *dweights_;
};

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_ENTMAX_ATTENTION_BACKWARD_INL_H_
