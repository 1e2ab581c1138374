// One head's backward, tile by tile. Include after hwy/foreach_target.h.
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_SOFTMAX_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_SOFTMAX_BACKWARD_INL_H_
#undef HEDGEROW_KERNELS_SOFTMAX_BACKWARD_INL_H_
#else
#define HEDGEROW_KERNELS_SOFTMAX_BACKWARD_INL_H_
#endif

#include "base/counter_rng.h"
#include "kernels/softmax/softmax_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {

// A float32 log-sum-exp of this size or more is too coarse for exp(score - lse); such rows get
// their maximum and sum again (they are rare: scores beyond a hundred, or masks of finfo.min).
inline constexpr float kLargeLse = 128.0f;
// One head's queries [t_begin, t_end) against keys [s_begin, s_end) of its key/value head.
class HeadBackward {
 public:
  HeadBackward(const SoftmaxParams& p, const SoftmaxGradients& g, BackwardScratch& scratch)
      : p_(p), g_(g), scratch_(scratch), lanes_(float_lanes()) {
    key_stride_ = round_up(p.width, lanes_);
    value_stride_ = round_up(p.value_width, lanes_);
    weights_ = reserve(scratch.weights, kQueryTile * kKeyTile);
    dscores_ = reserve(scratch.dscores, kQueryTile * kKeyTile);
  }

  void set_keys(int64_t b, int64_t kv_head, int64_t begin, int64_t end) {
    b_ = b;
    s_begin_ = begin;
    const int64_t n = end - begin, pw = panel_width();
    float* staging = reserve(scratch_.staging, pw * std::max(p_.width, p_.value_width));
    key_panels_ = reserve(scratch_.key_panels, round_up(n, pw) * p_.width);
    value_panels_ = reserve(scratch_.value_panels, round_up(n, pw) * p_.value_width);
    keys_ = reserve(scratch_.keys, n * key_stride_);
    pack_panels(p_.dtype, shifted(p_.k, begin), b, kv_head, 0, n, p_.width, key_panels_, staging);
    pack_panels(p_.dtype, shifted(p_.v, begin), b, kv_head, 0, n, p_.value_width, value_panels_,
                staging);
    for (int64_t s = 0; s < n; s++) {
      float* row = keys_ + s * key_stride_;
      load_row(p_.dtype, row_pointer(p_.dtype, p_.k, b, kv_head, begin + s), p_.width, key_stride_,
               1.0f, row);
      // what is not finite reaches dS where it is visible; here it must not meet a dS of 0
      if (!all_finite(row, p_.width)) std::fill(row, row + key_stride_, 0.0f);
    }
  }

  void set_queries(int64_t h, int64_t begin, int64_t end) {
    h_ = h;
    t_begin_ = begin;
    const int64_t n = end - begin;
    q_ = reserve(scratch_.q, n * key_stride_);
    grad_out_ = reserve(scratch_.grad_out, n * value_stride_);
    float* out = reserve(scratch_.row_out, value_stride_);
    shift_ = reserve(scratch_.shift, n);
    log2_sum_ = reserve(scratch_.log2_sum, n);
    delta_ = reserve(scratch_.delta, n);
    for (int64_t r = 0; r < n; r++) {
      const int64_t t = begin + r;
      float* q = q_ + r * key_stride_;
      float* go = grad_out_ + r * value_stride_;
      const float lse = g_.lse[(b_ * p_.heads + h) * p_.queries + t];
      shift_[r] = log2_sum_[r] = delta_[r] = 0.0f;
      if (lse == -kInfinity) {  // sees nothing: whatever lies there stays out of sums
        std::fill(q, q + key_stride_, 0.0f);
        std::fill(go, go + value_stride_, 0.0f);
        continue;
      }
      load_row(p_.dtype, row_pointer(p_.dtype, p_.q, b_, h, t), p_.width, key_stride_,
               static_cast<float>(p_.scale), q);
      load_row(p_.dtype, row_pointer(p_.dtype, g_.grad_out, b_, h, t), p_.value_width,
               value_stride_, 1.0f, go);
      load_row(p_.dtype, row_pointer(p_.dtype, g_.out, b_, h, t), p_.value_width, value_stride_,
               1.0f, out);
      delta_[r] = dot(go, out, value_stride_);
      shift_[r] = lse;
      if (!(std::fabs(lse) < kLargeLse)) renormalise(r);
    }
  }

  int64_t visible(int64_t t, int64_t s0, int64_t n) const {
    return std::clamp<int64_t>(causal_keys(p_, t) - s0, 0, n);
  }

  // Weights (as dropped) and score gradients of queries t0 .. + rows and keys s0 .. + n.
  void tile(int64_t t0, int64_t rows, int64_t s0, int64_t n) {
    t0_ = t0;
    rows_ = rows;
    s0_ = s0;
    num_keys_ = n;
    const bool plain = p_.mask.kind == MaskKind::kNone && p_.dropout_p == 0;
    if (plain && n == kKeyTile && visible(t0, s0, n) == n) {
      full_tile();
    } else {
      general_tile();
    }
  }

  // dV, dK [s_begin ..) and dQ [t_begin ..) += the tile's products.
  void accumulate(float* dq, float* dk, float* dv) {
    const float* q = q_ + (t0_ - t_begin_) * key_stride_;
    const float* go = grad_out_ + (t0_ - t_begin_) * value_stride_;
    accumulate_keys(weights_, go, value_stride_, dv + (s0_ - s_begin_) * value_stride_);
    accumulate_keys(dscores_, q, key_stride_, dk + (s0_ - s_begin_) * key_stride_);
    const float* keys = keys_ + (s0_ - s_begin_) * key_stride_;
    float* to = dq + (t0_ - t_begin_) * key_stride_;
    for_vec_panels(key_stride_ / lanes_, [&](auto nv, int64_t j) HEDGEROW_FUNCTOR {
      for_row_tiles(rows_, [&](auto mr, int64_t r) HEDGEROW_FUNCTOR {
        constexpr int kRows = decltype(mr)::value;
        gemm_tile<kRows, decltype(nv)::value>(
            visible(t0_ + r + kRows - 1, s0_, num_keys_), dscores_ + r * kKeyTile, kKeyTile, 1,
            keys + j * lanes_, key_stride_, to + r * key_stride_ + j * lanes_, key_stride_, true);
      });
    });
  }

  const float* dscores() const { return dscores_; }
  int64_t key_stride() const { return key_stride_; }
  int64_t value_stride() const { return value_stride_; }

 private:
  ConstTensor shifted(ConstTensor x, int64_t rows) const {
    x.data = static_cast<const char*>(x.data) + rows * x.row_stride * element_bytes(p_.dtype);
    return x;
  }

  // Maximum and sum of row r over all keys it sees, as the forward computes them.
  void renormalise(int64_t r) {
    const int64_t t = t_begin_ + r, n = causal_keys(p_, t), kv_head = h_ / group_size(p_);
    const float lowest = std::numeric_limits<float>::lowest();
    float* key = reserve(scratch_.staging, panel_width() * std::max(p_.width, p_.value_width));
    float max = -kInfinity, sum = 0.0f;
    for (int64_t s = 0; s < n; s++) {
      float bias = 0.0f;
      if (p_.mask.kind != MaskKind::kNone) mask_row(p_.mask, b_, h_, t, s, 1, &bias);
      if (bias == -kInfinity) continue;
      load_row(p_.dtype, row_pointer(p_.dtype, p_.k, b_, kv_head, s), p_.width, p_.width, 1.0f,
               key);
      float score = dot(q_ + r * key_stride_, key, p_.width);
      if (p_.mask.kind != MaskKind::kNone) score = std::max(score + bias, lowest);
      if (score > max) {
        sum *= std::exp(max - score);
        max = score;
      }
      sum += std::exp(score - max);
    }
    shift_[r] = max;
    log2_sum_[r] = std::log2(sum);
  }

  // Every row sees every key. Products and exponentials in turn: together they need more
  // registers than there are.
  void full_tile() {
    const FloatTag d;
    const int64_t pw = panel_width(), at = t0_ - t_begin_;
    for (int64_t j0 = 0; j0 < kKeyTile; j0 += pw) {
      const int64_t s = s0_ - s_begin_ + j0;
      for_row_tiles(rows_, [&](auto mr, int64_t r) HEDGEROW_FUNCTOR {
        constexpr int kRows = decltype(mr)::value;
        shifted_tile<kRows>(p_.width, q_ + (at + r) * key_stride_, key_stride_,
                            key_panels_ + s * p_.width, pw, shift_ + at + r,
                            weights_ + r * kKeyTile + j0, kKeyTile);
      });
      for_row_tiles(rows_, [&](auto mr, int64_t r) HEDGEROW_FUNCTOR {
        constexpr int kRows = decltype(mr)::value;
        shifted_tile<kRows>(p_.value_width, grad_out_ + (at + r) * value_stride_, value_stride_,
                            value_panels_ + s * p_.value_width, pw, delta_ + at + r,
                            dscores_ + r * kKeyTile + j0, kKeyTile);
      });
    }
    for (int64_t r = 0; r < rows_; r++) {
      float* HWY_RESTRICT w = weights_ + r * kKeyTile;
      float* HWY_RESTRICT ds = dscores_ + r * kKeyTile;
      const FloatVec log2_sum = hn::Set(d, log2_sum_[at + r]);
      for (int64_t i = 0; i < kKeyTile; i += lanes_) {
        const FloatVec x = hn::MulSub(hn::LoadU(d, w + i), hn::Set(d, kLog2e), log2_sum);
        const FloatVec weight = exp2_vec(x);
        hn::StoreU(weight, d, w + i);
        hn::StoreU(hn::Mul(weight, hn::LoadU(d, ds + i)), d, ds + i);
      }
    }
  }

  // Any tile: masks, causality, dropout, the last keys.
  void general_tile() {
    const int64_t pw = panel_width(), at = t0_ - t_begin_;
    for (int64_t j0 = 0; j0 < num_keys_; j0 += pw) {
      const int64_t s = s0_ - s_begin_ + j0;
      for (int64_t r = 0; r < rows_; r += kTileRows) {
        const int64_t rows = std::min<int64_t>(kTileRows, rows_ - r);
        // as many columns as the last of the rows sees
        const int64_t seen = visible(t0_ + r + rows - 1, s0_ + j0, std::min(pw, num_keys_ - j0));
        const int64_t vecs = divide_up(seen, lanes_), to = r * kKeyTile + j0;
        gemm(rows, vecs, p_.width, q_ + (at + r) * key_stride_, key_stride_, 1,
             key_panels_ + s * p_.width, pw, weights_ + to, kKeyTile, false);
        gemm(rows, vecs, p_.value_width, grad_out_ + (at + r) * value_stride_, value_stride_, 1,
             value_panels_ + s * p_.value_width, pw, dscores_ + to, kKeyTile, false);
      }
    }
    for (int64_t r = 0; r < rows_; r++) general_row(r);
  }

  void general_row(int64_t r) {
    const FloatTag d;
    const int64_t t = t0_ + r, seen = visible(t, s0_, num_keys_), at = t - t_begin_;
    HWY_ALIGN float bias[kKeyTile];
    HWY_ALIGN float dropout[kKeyTile];
    std::fill(bias, bias + kKeyTile, -kInfinity);
    if (p_.mask.kind == MaskKind::kNone) {
      std::fill(bias, bias + seen, 0.0f);
    } else {
      mask_row(p_.mask, b_, h_, t, s0_, seen, bias);
    }
    dropout_row(t, dropout);
    float* HWY_RESTRICT w = weights_ + r * kKeyTile;
    float* HWY_RESTRICT ds = dscores_ + r * kKeyTile;
    for (int64_t i = 0; i < num_keys_; i += lanes_) {
      FloatVec x = add_bias(hn::LoadU(d, w + i), hn::LoadU(d, bias + i));
      x = hn::Mul(hn::Sub(x, hn::Set(d, shift_[at])), hn::Set(d, kLog2e));
      const FloatVec weight = exp2_vec(hn::Sub(x, hn::Set(d, log2_sum_[at])));
      const FloatVec kept = hn::LoadU(d, dropout + i);
      const FloatVec dp = hn::Mul(hn::LoadU(d, ds + i), kept);
      const FloatVec grad = hn::Mul(weight, hn::Sub(dp, hn::Set(d, delta_[at])));
      // a weight of 0 must not meet values that are not finite
      hn::StoreU(hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)), grad), d, ds + i);
      hn::StoreU(hn::Mul(weight, kept), d, w + i);
    }
  }

  void dropout_row(int64_t t, float* HWY_RESTRICT kept) const {
    std::fill(kept, kept + kKeyTile, 1.0f);
    if (p_.dropout_p == 0) return;
    const uint64_t key = dropout_row_key(p_.dropout_seed, b_, h_, t);
    const uint32_t threshold = dropout_threshold(p_.dropout_p);
    const float scale = static_cast<float>(1.0 / (1.0 - p_.dropout_p));
    for (int64_t i = 0; i < kKeyTile; i++) {
      kept[i] = dropout_bits(key, s0_ + i) >= threshold ? scale : 0.0f;
    }
  }

  // to[key][stride] += X^T Y over the tile's queries, from the first that sees the key.
  void accumulate_keys(const float* x, const float* y, int64_t stride, float* to) {
    for_vec_panels(stride / lanes_, [&](auto nv, int64_t j) HEDGEROW_FUNCTOR {
      for_row_tiles(num_keys_, [&](auto mr, int64_t m) HEDGEROW_FUNCTOR {
        int64_t first = 0;
        if (p_.is_causal) {
          first = std::clamp<int64_t>(s0_ + m - (p_.keys - p_.queries) - t0_, 0, rows_);
        }
        gemm_tile<decltype(mr)::value, decltype(nv)::value>(
            rows_ - first, x + first * kKeyTile + m, 1, kKeyTile, y + first * stride + j * lanes_,
            stride, to + m * stride + j * lanes_, stride, true);
      });
    });
  }

  const SoftmaxParams& p_;
  const SoftmaxGradients& g_;
  BackwardScratch& scratch_;
  int64_t lanes_, key_stride_ = 0, value_stride_ = 0;
  int64_t b_ = 0, h_ = 0, s_begin_ = 0, t_begin_ = 0;
  int64_t t0_ = 0, rows_ = 0, s0_ = 0, num_keys_ = 0;  // the tile
  float *key_panels_ = nullptr, *value_panels_ = nullptr, *keys_ = nullptr;
  float *q_ = nullptr, *grad_out_ = nullptr, *shift_ = nullptr, *log2_sum_ = nullptr,
        *delta_ = nullptr, *weights_ = nullptr, *dscores_ = nullptr;
};

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_SOFTMAX_BACKWARD_INL_H_
