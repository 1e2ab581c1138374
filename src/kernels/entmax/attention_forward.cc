// One tile of query rows of the forward. Scores of the tile against all keys lie in L2; then each
// row finds its threshold. A bound of it from the maxima per lane leaves few candidates, on which
// Newton's iteration ends, and the values of the support are added one by one. Rows with a large
// support are solved in place, and their values multiplied as tiles.
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/entmax/attention_forward.cc"
#include "base/counter_rng.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/entmax/attention_curves-inl.h"
#include "kernels/entmax/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {
namespace {

// Newton's steps on the maxima per lane.
constexpr int kBoundSteps = 3;
// Dense rows of this many vectors take their first guess from a sample of every eighth.
constexpr int64_t kSampledVecs = 64;
constexpr int64_t kSampleStride = 8;

class EntmaxForward {
 public:
  EntmaxForward(const EntmaxAttentionParams& p, const EntmaxSupport* support,
                const ForwardTile& tile, EntmaxForwardScratch& scratch)
      : p_(p),
        support_(support),
        tile_(tile),
        list_(scratch.list),
        e_(alpha_of(p, tile.h) - 1),
        lanes_(float_lanes()),
        head_(p, scratch.head),
        scores_(p, scratch.tile) {
    reserve_list(list_, p.keys);
    keys_ = list_.keys.data();
    weights_ = list_.weights.data();
    value_stride_ = head_.value_stride();
    out_ = reserve(scratch.out, kRowTile * value_stride_);
  }

  void run() {
    int64_t t[kRowTile];
    for (int64_t r = 0; r < tile_.rows; r++) t[r] = tile_.t0 + r;
    const int64_t end = causal_keys(p_, t[tile_.rows - 1]);
    head_.select(tile_.b, tile_.h / group_size(p_));
    head_.pack(end);
    std::fill(out_, out_ + tile_.rows * value_stride_, 0.0f);
    std::fill(dense_, dense_ + tile_.rows, false);
    if (end > 0) scores_.compute(head_, tile_.b, tile_.h, t, tile_.rows);
    if (e_ > entmax::kLambdaForm) return wide_rows();
    with_curve(e_, [&](const auto& curve) { rows(curve); });
  }

  void store(const MutTensor& out) const {
    for (int64_t r = 0; r < tile_.rows; r++) {
      store_row(p_.dtype, out_ + r * value_stride_, p_.value_width, 1.0f,
                row_pointer(p_.dtype, out, tile_.b, tile_.h, tile_.t0 + r));
    }
  }

 private:
  int64_t visible(int64_t r) const { return causal_keys(p_, tile_.t0 + r); }

  template <class Curve>
  void rows(const Curve& curve) {
    for (int64_t r = 0; r < tile_.rows; r++) {
      const float max = visible(r) > 0 ? scores_.max(r) : -kInfinity;
      if (max == -kInfinity) {  // sees nothing
        keep(r, entmax::Threshold<float>{}, 0);
        continue;
      }
      float shift = 0.0f;
      int64_t n = visible(r);
      if constexpr (!Curve::kEverywhere) {
        shift = shift_bound(curve, scores_.highest(r), panel_width(), max, kBoundSteps);
        n = candidates(r, max, shift, curve.width());
      }
      const bool dense = Curve::kEverywhere || n > kDenseShare * visible(r);
      if (dense) {
        dense_row(curve, r, max, shift);
      } else {
        sparse_row(curve, r, n, max, shift);
      }
    }
    multiply_dense_rows();
  }

  // Keys that can be supported when lambda - max >= shift.
  int64_t candidates(int64_t r, float max, float shift, float width) {
    const float least = lowest_candidate(max, shift, width);
    return select_keys(scores_.scores(r), scores_.padded(r), least, list_.bits.data(), keys_);
  }

  // The n candidates keys_ of row r.
  template <class Curve>
  void sparse_row(const Curve& curve, int64_t r, int64_t n, float max, float shift) {
    float* z = list_.scores.data();
    const float* row = scores_.scores(r);
    for (int64_t i = 0; i < n; i++) z[i] = row[keys_[i]];
    const int64_t padded = round_up(n, lanes_);
    std::fill(z + n, z + padded, -kInfinity);
    shift = solve_weights(curve, z, padded, max, shift, list_.s.data(), list_.u.data(), weights_);
    int64_t support = 0;
    for (int64_t i = 0; i < n; i++) {  // in place: support <= i
      weights_[support] = weights_[i];
      keys_[support] = keys_[i];
      support += weights_[i] > 0;
    }
    entmax::Threshold<float> threshold{static_cast<float>(e_)};
    threshold.max = max;
    threshold.shift = shift;
    keep(r, threshold, support);
    add_values(r, support);
  }

  // Row r in place: scores to weights.
  template <class Curve>
  void dense_row(const Curve& curve, int64_t r, float max, float shift) {
    float* row = scores_.scores(r);
    const int64_t n = visible(r), padded = scores_.padded(r);
    if (!Curve::kEverywhere && padded >= kSampledVecs * lanes_) {
      shift = sampled_shift(curve, row, padded, n, max, shift);
    }
    shift = solve_weights(curve, row, padded, max, shift, list_.s.data(), list_.u.data(), row);
    std::fill(row + padded, row + scores_.padded(tile_.rows - 1), 0.0f);
    dense_[r] = true;
    entmax::Threshold<float> threshold{static_cast<float>(e_)};
    threshold.max = max;
    threshold.shift = shift;
    if (support_ != nullptr) {
      const int64_t support = count_positive(row, padded);
      if (support <= entmax_support_capacity(p_.keys)) {
        select_keys(row, padded, 0.0f, list_.bits.data(), keys_);
      }
      keep(r, threshold, support, [&](int64_t i) { return row[keys_[i]]; });
    }
    if (p_.dropout_p > 0) {
      const uint64_t key = row_key(r);
      for (int64_t s = 0; s < n; s++) row[s] *= dropout(key, s);
    }
  }

  // A guess near lambda - max: that of every eighth vector, each counted eight times.
  template <class Curve>
  float sampled_shift(const Curve& curve, const float* row, int64_t padded, int64_t n, float max,
                      float shift) const {
    constexpr int kSteps = 4;
    const float share = static_cast<float>(n) * kSampleStride / static_cast<float>(padded);
    const float largest = curve.largest_shift(static_cast<float>(n));
    for (int i = 0; i < kSteps; i++) {
      const RowSums sums = row_sums(curve, row, padded, kSampleStride, max, shift);
      if (!(sums.s > 0)) break;
      shift = std::clamp(shift + curve.step(sums.p * share, sums.s * share), 0.0f, largest);
    }
    return shift;
  }

  // alpha > 2: the candidates in double.
  void wide_rows() {
    const float width = static_cast<float>(1 / e_);
    for (int64_t r = 0; r < tile_.rows; r++) {
      const float max = visible(r) > 0 ? scores_.max(r) : -kInfinity;
      const int64_t n = max == -kInfinity ? 0 : candidates(r, max, 0.0f, width);
      const float* row = scores_.scores(r);
      list_.wide_scores.resize(n);
      for (int64_t i = 0; i < n; i++) list_.wide_scores[i] = row[keys_[i]];
      const entmax::Threshold<double> threshold =
          entmax::solve(list_.wide_scores.data(), n, e_, list_.wide_scratch);
      int64_t support = 0;
      for (int64_t i = 0; i < n; i++) {
        weights_[support] = static_cast<float>(threshold.weight(list_.wide_scores[i]));
        keys_[support] = keys_[i];
        support += weights_[support] > 0;
      }
      keep(r, threshold, support);
      add_values(r, support);
    }
  }

  uint64_t row_key(int64_t r) const {
    return dropout_row_key(p_.dropout_seed, tile_.b, tile_.h, tile_.t0 + r);
  }
  float dropout(uint64_t key, int64_t s) const {
    const bool keep = dropout_bits(key, s) >= dropout_threshold(p_.dropout_p);
    return keep ? static_cast<float>(1.0 / (1.0 - p_.dropout_p)) : 0.0f;
  }

  template <class Threshold>
  void keep(int64_t r, const Threshold& threshold, int64_t n) const {
    keep(r, threshold, n, [&](int64_t i) { return weights_[i]; });
  }
  template <class Threshold, class Weights>
  void keep(int64_t r, const Threshold& threshold, int64_t n, Weights weights) const {
    if (support_ == nullptr) return;
    KeptRow(p_, *support_, tile_.b, tile_.h, tile_.t0 + r)
        .store(
            threshold, n, [&](int64_t i) { return keys_[i]; }, weights);
  }

  // out_ of row r += weights_ times the values of keys_.
  void add_values(int64_t r, int64_t n) {
    float* w = weights_;
    if (p_.dropout_p > 0) {
      w = list_.dropped.data();
      const uint64_t key = row_key(r);
      int64_t kept = 0;  // what is dropped is not read
      for (int64_t i = 0; i < n; i++) {
        w[kept] = weights_[i] * dropout(key, keys_[i]);
        keys_[kept] = keys_[i];
        kept += w[kept] > 0;
      }
      n = kept;
    }
    for_vec_panels(value_stride_ / lanes_, [&](auto nv, int64_t j) HEDGEROW_FUNCTOR {
      add_rows<decltype(nv)::value>(head_.value(0) + j * lanes_, value_stride_, keys_, w, n,
                                    out_ + r * value_stride_ + j * lanes_);
    });
    add_bad_values(r, [&](int64_t s) {
      const int32_t* at = std::lower_bound(keys_, keys_ + n, static_cast<int32_t>(s));
      return at < keys_ + n && *at == s ? w[at - keys_] : 0.0f;
    });
  }

  // out_ of row r += values that are not finite, where they have weight.
  template <class WeightOf>
  void add_bad_values(int64_t r, WeightOf weight_of) {
    for (const int64_t s : head_.bad_values()) {
      const float w = s < visible(r) ? weight_of(s) : 0.0f;
      const int64_t at = row_index(p_.v, tile_.b, tile_.h / group_size(p_), s);
      for (int64_t i = 0; w != 0 && i < p_.value_width; i++) {
        out_[r * value_stride_ + i] +=
            w * static_cast<float>(load_element(p_.dtype, p_.v.data, at + i));
      }
    }
  }

  // out_ += weights v for runs of dense rows.
  void multiply_dense_rows() {
    int64_t end;
    for (int64_t begin = 0; begin < tile_.rows; begin = end) {
      end = begin + 1;
      if (!dense_[begin]) continue;
      while (end < tile_.rows && dense_[end]) end++;
      for_vec_panels(value_stride_ / lanes_, [&](auto nv, int64_t j) HEDGEROW_FUNCTOR {
        for_row_tiles(end - begin, [&](auto mr, int64_t i) HEDGEROW_FUNCTOR {
          const int64_t r = begin + i;
          gemm_tile<decltype(mr)::value, decltype(nv)::value>(
              visible(r + decltype(mr)::value - 1), scores_.scores(r), scores_.stride(), 1,
              head_.value(0) + j * lanes_, value_stride_, out_ + r * value_stride_ + j * lanes_,
              value_stride_, true);
        });
      });
      for (int64_t r = begin; r < end; r++) {
        add_bad_values(r, [&](int64_t s) { return scores_.scores(r)[s]; });
      }
    }
  }

  const EntmaxAttentionParams& p_;
  const EntmaxSupport* support_;
  const ForwardTile& tile_;
  ListScratch& list_;
  double e_;
  int64_t lanes_, value_stride_;
  PackedHead head_;
  ScoreTile scores_;
  int32_t* keys_;
  float *weights_, *out_;
  bool dense_[kRowTile];
};

}  // namespace

void entmax_forward(const EntmaxAttentionParams& p, const MutTensor& out,
                    const EntmaxSupport* support, const ForwardTile& tile,
                    EntmaxForwardScratch& scratch) {
  EntmaxForward forward(p, support, tile, scratch);
  forward.run();
  forward.store(out);
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hedgerow::kernels {
HWY_EXPORT(entmax_forward);

void entmax_forward_tile(const EntmaxAttentionParams& p, const MutTensor& out,
                         const EntmaxSupport* support, const ForwardTile& tile,
                         EntmaxForwardScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(entmax_forward)(p, out, support, tile, scratch);
}

}  // namespace hedgerow::kernels
#endif  // HWY_ONCE
