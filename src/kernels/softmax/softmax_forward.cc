// One query tile of the forward: blocks of keys with running references instead of running maxima.
// Weights are relative to a reference per row, which the first block sets to its maximum and which
// is raised only when a score exceeds it by 2^30: then nothing overflows, and results are as exact
// as with the true maximum, since floating point has no scale.
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax/softmax_forward.cc"
#include "base/counter_rng.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/softmax/softmax_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {
namespace {

// Keys per block: weights of 64 x 256 stay in L2, and sums over 256 keys stay in registers.
constexpr int64_t kKeyBlock = 256;
// Scores may exceed their reference by this much (log2) before the reference is raised.
constexpr float kHeadroom = 30.0f;

class TileForward {
 public:
  TileForward(const SoftmaxParams& p, const ForwardTile& tile, ForwardScratch& scratch)
      : p_(p), tile_(tile), scratch_(scratch), kv_head_(tile.h / group_size(p)) {
    lanes_ = float_lanes();
    value_stride_ = round_up(p.value_width, lanes_);
    pack_keys(causal_keys(p, tile.t0 + tile.rows - 1));
    q_ = reserve(scratch.q, kQueryTile * p.width);
    scores_ = reserve(scratch.scores, kQueryTile * kKeyBlock);
    out_ = reserve(scratch.out, kQueryTile * value_stride_);
    bias_ = reserve(scratch.bias, kKeyBlock);
    sums_ = reserve(scratch.sums, kQueryTile * lanes_);
    block_sums_ = reserve(scratch.block_sums, kQueryTile * lanes_);
    for (int64_t r = 0; r < tile.rows; r++) {
      load_row(p.dtype, row_pointer(p.dtype, p.q, tile.b, tile.h, tile.t0 + r), p.width, p.width,
               static_cast<float>(p.scale), q_ + r * p.width);
      reference_[r] = -kInfinity;
    }
    std::fill(out_, out_ + tile.rows * value_stride_, 0.0f);
    std::fill(sums_, sums_ + tile.rows * lanes_, 0.0f);
  }

  void run() {
    const int64_t end = causal_keys(p_, tile_.t0 + tile_.rows - 1);
    const bool plain = p_.mask.kind == MaskKind::kNone && p_.dropout_p == 0;
    // keys that every row sees, in whole panels
    const int64_t full = plain ? causal_keys(p_, tile_.t0) / panel_width() * panel_width() : 0;
    int64_t s = std::min(full, round_up(kKeyTile, panel_width()));
    if (s > 0) general_block(0, s);
    for (int64_t n; s < full; s += n) {
      n = std::min(kKeyBlock, full - s);
      if (!fused_scores(s, n)) {
        general_block(s, n);
        continue;
      }
      add_values(s, n);
    }
    for (; s < end; s += kKeyBlock) general_block(s, std::min(kKeyBlock, end - s));
  }

  void store(const MutTensor& out, float* lse) const {
    for (int64_t r = 0; r < tile_.rows; r++) {
      const int64_t t = tile_.t0 + r;
      const float sum = reduce_sum(hn::LoadU(FloatTag(), sums_ + r * lanes_));
      const bool empty = sum == 0.0f;
      store_row(p_.dtype, out_ + r * value_stride_, p_.value_width, empty ? 0.0f : 1.0f / sum,
                row_pointer(p_.dtype, out, tile_.b, tile_.h, t));
      if (lse == nullptr) continue;
      lse[(tile_.b * p_.heads + tile_.h) * p_.queries + t] =
          empty ? -kInfinity : reference_[r] + std::log(sum);
    }
  }

 private:
  // Packs keys and values up to `end`, unless an earlier tile of the same head did.
  void pack_keys(int64_t end) {
    const int64_t pw = panel_width();
    if (scratch_.packed_batch != tile_.b || scratch_.packed_head != kv_head_) {
      scratch_.packed_batch = tile_.b;
      scratch_.packed_head = kv_head_;
      scratch_.packed_keys = 0;
      scratch_.bad_values.clear();
    }
    keys_ = reserve(scratch_.keys, round_up(p_.keys, pw) * p_.width);
    values_ = reserve(scratch_.values, p_.keys * value_stride_);
    const int64_t begin = scratch_.packed_keys;
    end = std::min(p_.keys, round_up(end, pw));
    if (begin >= end) return;
    pack_panels(p_.dtype, p_.k, tile_.b, kv_head_, begin, end, p_.width, keys_,
                reserve(scratch_.rows, pw * p_.width));
    for (int64_t s = begin; s < end; s++) {
      float* row = values_ + s * value_stride_;
      load_row(p_.dtype, row_pointer(p_.dtype, p_.v, tile_.b, kv_head_, s), p_.value_width,
               value_stride_, 1.0f, row);
      if (all_finite(row, p_.value_width)) continue;
      std::fill(row, row + value_stride_, 0.0f);
      scratch_.bad_values.push_back(s);
    }
    scratch_.packed_keys = end;
  }

  int64_t visible(int64_t r, int64_t s0, int64_t n) const {
    return std::clamp<int64_t>(causal_keys(p_, tile_.t0 + r) - s0, 0, n);
  }

  // Weights of n keys from s0 on that every row sees, without a search for the maximum; false if a
  // score left the headroom (then nothing but scores_ has changed).
  bool fused_scores(int64_t s0, int64_t n) {
    const FloatTag d;
    const int64_t lanes = lanes_, pw = panel_width();
    FloatVec highest = hn::Set(d, -kInfinity);
    float* HWY_RESTRICT sums = block_sums_;
    std::fill(sums, sums + tile_.rows * lanes, 0.0f);
    for (int64_t j0 = 0; j0 < n; j0 += pw) {
      const float* panel = keys_ + (s0 + j0) * p_.width;
      for_row_tiles(tile_.rows, [&](auto mr, int64_t r) HEDGEROW_FUNCTOR {
        shifted_tile<decltype(mr)::value>(p_.width, q_ + r * p_.width, p_.width, panel, pw,
                                          reference_ + r, scores_ + r * kKeyBlock + j0, kKeyBlock);
      });
      for (int64_t r = 0; r < tile_.rows; r++) {
        float* HWY_RESTRICT row = scores_ + r * kKeyBlock + j0;
        FloatVec sum = hn::LoadU(d, sums + r * lanes);
        HEDGEROW_UNROLL
        for (int j = 0; j < kTileVecs; j++) {
          const FloatVec x = hn::Mul(hn::LoadU(d, row + j * lanes), hn::Set(d, kLog2e));
          highest = hn::Max(highest, x);
          const FloatVec w = exp2_vec(x);
          hn::StoreU(w, d, row + j * lanes);
          sum = hn::Add(sum, w);
        }
        hn::StoreU(sum, d, sums + r * lanes);
      }
    }
    if (!(reduce_max(highest) <= kHeadroom)) return false;
    for (int64_t i = 0; i < tile_.rows * lanes; i++) sums_[i] += sums[i];
    return true;
  }

  // Any n <= kKeyBlock keys: masks, causality, dropout, new references.
  void general_block(int64_t s0, int64_t n) {
    const int64_t pw = panel_width();
    for (int64_t j0 = 0; j0 < n; j0 += pw) {
      for (int64_t r = 0; r < tile_.rows; r += kTileRows) {
        const int64_t rows = std::min<int64_t>(kTileRows, tile_.rows - r);
        // as many columns as the last of the rows sees
        const int64_t seen = visible(r + rows - 1, s0 + j0, std::min(pw, n - j0));
        gemm(rows, divide_up(seen, lanes_), p_.width, q_ + r * p_.width, p_.width, 1,
             keys_ + (s0 + j0) * p_.width, pw, scores_ + r * kKeyBlock + j0, kKeyBlock, false);
      }
    }
    for (int64_t r = 0; r < tile_.rows; r++) {
      const int64_t seen = visible(r, s0, n);
      float* row = scores_ + r * kKeyBlock;
      std::fill(row + seen, row + n, 0.0f);
      if (seen == 0) continue;
      if (p_.mask.kind != MaskKind::kNone) {
        mask_row(p_.mask, tile_.b, tile_.h, tile_.t0 + r, s0, seen, bias_);
        std::fill(bias_ + seen, bias_ + round_up(seen, lanes_), 0.0f);
      }
      weigh_row(r, row, seen);
      std::fill(row + seen, row + std::min(n, round_up(seen, lanes_)), 0.0f);
      if (p_.dropout_p > 0) drop_row(r, s0, row, seen);
    }
    add_values(s0, n);
  }

  // row[0 .. n): scores to weights; raises the row's reference to the maximum seen so far.
  void weigh_row(int64_t r, float* HWY_RESTRICT row, int64_t n) {
    const FloatTag d;
    FloatVec top = hn::Set(d, -kInfinity);
    for (int64_t i = 0; i < n; i += lanes_) {
      FloatVec x = hn::LoadU(d, row + i);
      if (p_.mask.kind != MaskKind::kNone) x = add_bias(x, hn::LoadU(d, bias_ + i));
      if (i + lanes_ > n) x = hn::IfThenElse(hn::FirstN(d, n - i), x, hn::Set(d, -kInfinity));
      hn::StoreU(x, d, row + i);
      top = hn::Max(top, x);
    }
    const float before = reference_[r];
    const float reference = std::max(before, reduce_max(top));
    if (reference == -kInfinity) {  // nothing visible so far
      std::fill(row, row + n, 0.0f);
      return;
    }
    if (before != -kInfinity && reference != before) rescale_row(r, std::exp(before - reference));
    reference_[r] = reference;
    FloatVec sum = hn::LoadU(d, sums_ + r * lanes_);
    for (int64_t i = 0; i < n; i += lanes_) {
      const FloatVec x = hn::Sub(hn::LoadU(d, row + i), hn::Set(d, reference));
      const FloatVec w = exp2_vec(hn::Mul(x, hn::Set(d, kLog2e)));
      hn::StoreU(w, d, row + i);
      sum = hn::Add(sum, w);
    }
    hn::StoreU(sum, d, sums_ + r * lanes_);
  }

  void rescale_row(int64_t r, float factor) {
    for (int64_t i = 0; i < value_stride_; i++) out_[r * value_stride_ + i] *= factor;
    for (int64_t i = 0; i < lanes_; i++) sums_[r * lanes_ + i] *= factor;
  }

  void drop_row(int64_t r, int64_t s0, float* HWY_RESTRICT row, int64_t n) const {
    const uint64_t key = dropout_row_key(p_.dropout_seed, tile_.b, tile_.h, tile_.t0 + r);
    const uint32_t threshold = dropout_threshold(p_.dropout_p);
    const float kept = static_cast<float>(1.0 / (1.0 - p_.dropout_p));
    for (int64_t i = 0; i < n; i++) {
      row[i] = dropout_bits(key, s0 + i) >= threshold ? row[i] * kept : 0.0f;
    }
  }

  // out_ += weights v over the n keys from s0 on, each row tile as far as its last row sees.
  void add_values(int64_t s0, int64_t n) {
    const float* v = values_ + s0 * value_stride_;
    for_vec_panels(value_stride_ / lanes_, [&](auto nv, int64_t j) HEDGEROW_FUNCTOR {
      for_row_tiles(tile_.rows, [&](auto mr, int64_t r) HEDGEROW_FUNCTOR {
        gemm_tile<decltype(mr)::value, decltype(nv)::value>(
            visible(r + decltype(mr)::value - 1, s0, n), scores_ + r * kKeyBlock, kKeyBlock, 1,
            v + j * lanes_, value_stride_, out_ + r * value_stride_ + j * lanes_, value_stride_,
            true);
      });
    });
    for (int64_t s : scratch_.bad_values) {  // values that are not finite, where they have weight
      if (s < s0 || s >= s0 + n) continue;
      for (int64_t r = 0; r < tile_.rows; r++) {
        const float w = scores_[r * kKeyBlock + s - s0];
        for (int64_t i = 0; w != 0 && i < p_.value_width; i++) {
          out_[r * value_stride_ + i] +=
              w * static_cast<float>(
                      load_element(p_.dtype, p_.v.data, row_index(p_.v, tile_.b, kv_head_, s) + i));
        }
      }
    }
  }

  const SoftmaxParams& p_;
  const ForwardTile& tile_;
  ForwardScratch& scratch_;
  int64_t kv_head_, lanes_, value_stride_;
  float *keys_, *values_, *q_, *scores_, *out_, *bias_, *sums_, *block_sums_;
  float reference_[kQueryTile];
};

}  // namespace

void forward_tile(const SoftmaxParams& p, const MutTensor& out, float* lse, const ForwardTile& tile,
                  ForwardScratch& scratch) {
  TileForward forward(p, tile, scratch);
  forward.run();
  forward.store(out, lse);
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hedgerow::kernels {
HWY_EXPORT(forward_tile);

void softmax_forward_tile(const SoftmaxParams& p, const MutTensor& out, float* lse,
                          const ForwardTile& tile, ForwardScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(forward_tile)(p, out, lse, tile, scratch);
}

}  // namespace hedgerow::kernels
#endif  // HWY_ONCE
