// One tile of query rows of the forward. Scores of the tile against all keys lie in L2; then each
// row finds its threshold. A bound of it from the maxima per lane leaves few candidates, on which
// Newton's iteration ends, and the values of the support are added one by one. Rows with a large
// support are solved in place, and their values multiplied as tiles.
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/entmax/attention_forward.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/entmax/attention_lists-inl.h"
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
// Screening pays from this alpha - 1 on: below it supports are large.
constexpr double kScreenFrom = 0.2;

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
        screening_(scratch.screen),
        keys_(p.dtype, p.k, p.keys, p.width, scratch.keys),
        key_rows_(p.dtype, p.k, p.keys, p.width, scratch.key_rows),
        screened_keys_(p, scratch.screen),
        values_(p.dtype, p.v, p.keys, p.value_width, scratch.values),
        scores_(p, scratch.tile) {
    reserve_lists(list_, p.keys);
    for (int64_t r = 0; r < kRowTile; r++) queries_[r] = tile.t0 + r;
    out_stride_ = values_.padded();
    out_ = reserve(scratch.out, kRowTile * out_stride_);
  }

  void run() {
    keys_.select(tile_.b, tile_.h / group_size(p_));
    values_.select(tile_.b, tile_.h / group_size(p_));
    value_rows_ = values_.pack(visible(tile_.rows - 1));
    if (!screens() || !run_screened()) run_tile();
  }

  void store(const MutTensor& out) const {
    for (int64_t r = 0; r < tile_.rows; r++) {
      store_row(p_.dtype, out_ + r * out_stride_, p_.value_width, 1.0f,
                row_pointer(p_.dtype, out, tile_.b, tile_.h, tile_.t0 + r));
    }
  }

 private:
  // A row whose list waits to be solved with others.
  struct Listed {
    int64_t row, n;
  };

  int64_t visible(int64_t r) const { return causal_keys(p_, tile_.t0 + r); }

  // Whether scores of this tile are worth screening: lists of few keys, few of them candidates.
  bool screens() {
    if (screening_.head != tile_.h) {
      const bool adds = p_.mask.kind != MaskKind::kNone && p_.mask.kind != MaskKind::kBool;
      screening_.head = tile_.h;
      screening_.on = screening_.allowed && !adds && p_.keys >= kScreenKeys &&
                      p_.width % lanes_ == 0 && e_ >= kScreenFrom && e_ <= entmax::kLambdaForm;
    }
    return screening_.on && visible(0) >= kScreenKeys / 2;
  }

  // False if the tile has too many candidates.
  bool run_screened() {
    const int64_t kv_head = tile_.h / group_size(p_);
    key_rows_.select(tile_.b, kv_head);
    screened_keys_.select(tile_.b, kv_head);
    key_data_ = key_rows_.pack(visible(tile_.rows - 1));
    scores_.screen(screened_keys_, tile_.b, tile_.h, queries_, tile_.rows);
    screened_ = true;
    start();
    with_curve(e_, [&](const auto& curve) { rows(curve); });
    if (screening_.on) return true;
    screened_ = false;
    num_listed_ = 0;
    return false;
  }

  void run_tile() {
    if (visible(tile_.rows - 1) > 0) {
      scores_.compute(keys_, tile_.b, tile_.h, queries_, tile_.rows);
    }
    start();
    if (e_ > entmax::kLambdaForm) return wide_rows();
    with_curve(e_, [&](const auto& curve) { rows(curve); });
    multiply_dense_rows();
  }

  void start() {
    std::fill(out_, out_ + tile_.rows * out_stride_, 0.0f);
    for (int64_t r = 0; r < tile_.rows; r++) max_[r] = visible(r) > 0 ? scores_.max(r) : -kInfinity;
  }

  int32_t* keys(int64_t slot) { return list_.keys.data() + slot * list_.stride; }
  float* weights(int64_t slot) { return list_.weights.data() + slot * list_.stride; }

  template <class Curve>
  void rows(const Curve& curve) {
    HWY_ALIGN float shifts[kSteps];
    bool all_dense = Curve::kEverywhere;  // so far: then bounds and lists are not worth their while
    for (int64_t first = 0; first < tile_.rows; first += kGroup) {
      const int64_t end = std::min(first + kGroup, tile_.rows);
      if (!all_dense) {
        group_bounds(curve, scores_.highest(first), panel_width(), max_ + first, kBoundSteps,
                     shifts);
      }
      bool dense = true;
      for (int64_t r = first; r < end; r++) {
        if (max_[r] == -kInfinity) {  // sees nothing
          keep(r, entmax::Threshold<float>{}, 0, nullptr, nullptr);
        } else if (all_dense) {
          dense &= dense_row(curve, r, guess_) > kDenseShare * visible(r);
        } else if (!list_row(curve, r, shifts[r - first])) {
          dense_row(curve, r, shifts[r - first]);
        } else {
          dense = false;
        }
      }
      all_dense = Curve::kEverywhere || dense;
    }
    solve_lists(curve);
  }

  // Lists the candidates of row r; false if they are too many for a list.
  template <class Curve>
  bool list_row(const Curve& curve, int64_t r, float shift) {
    const int64_t slot = num_listed_;
    float* y = list_.scores.data() + slot * list_.stride;
    int64_t n;
    if (screened_) {
      n = list_screened(r, curve.width(), slot, y, shift);
      if (!screening_.on) return true;
    } else {
      n = candidates(r, lowest_candidate(max_[r], shift, curve.width()), slot);
      if (n > kDenseShare * visible(r)) return false;
      const float* row = scores_.scores(r);
      const float max = max_[r];
      const int32_t* key = keys(slot);
      for (int64_t i = 0; i < n; i++) y[i] = row[key[i]] - max;
    }
    listed_[slot] = {r, n};
    listed_shifts_[slot] = shift;
    if (++num_listed_ == kGroup) solve_lists(curve);
    return true;
  }

  // The same of a screened row. Scores may be off by the error: so may the maximum and lambda, and
  // each score on top. The candidates' exact scores give the maximum and the bound in its terms.
  int64_t list_screened(int64_t r, float width, int64_t slot, float* y, float& shift) {
    const float error = scores_.error(r), lambda = max_[r] + shift - error;
    const int64_t n = candidates(r, lowest_candidate(max_[r], shift, width) - 2.0f * error, slot);
    candidates_ += static_cast<double>(n);
    seen_ += static_cast<double>(visible(r));
    if (r >= kGroup && candidates_ > kScreenShare * seen_) screening_.on = false;
    if (!screening_.on || n == 0) return n;
    dot_rows(key_data_, key_rows_.stride(), p_.width, keys(slot), n, scores_.query(r), y);
    const float max = *std::max_element(y, y + n);
    for (int64_t i = 0; i < n; i++) y[i] -= max;
    max_[r] = max;
    shift = std::max(lambda - max - 2e-6f * (std::fabs(max) + std::fabs(lambda)), 0.0f);
    return n;
  }

  // Keys of row r whose scores are above `least`.
  int64_t candidates(int64_t r, float least, int64_t slot) {
    return select_keys(scores_.scores(r), scores_.padded(r), least, list_.bits.data(),
                       list_.words.data(), keys(slot));
  }

  template <class Curve>
  void solve_lists(const Curve& curve) {
    if (num_listed_ == 0) return;
    int64_t longest = 0;
    for (int64_t i = 0; i < num_listed_; i++) longest = std::max(longest, listed_[i].n);
    longest = round_up(longest, lanes_);
    for (int64_t i = 0; i < kGroup; i++) {
      float* y = list_.scores.data() + i * list_.stride;
      std::fill(y + (i < num_listed_ ? listed_[i].n : 0), y + longest, -kInfinity);
    }
    solve_group(curve, list_.scores.data(), longest, list_.stride, num_listed_, listed_shifts_,
                list_.s.data(), list_.u.data(), list_.weights.data());
    for (int64_t i = 0; i < num_listed_; i++) {
      const int64_t n = drop_zeros(weights(i), keys(i), listed_[i].n);
      keep(listed_[i].row, threshold(listed_[i].row, listed_shifts_[i]), n, keys(i), weights(i));
      add_values(listed_[i].row, n, keys(i), weights(i));
    }
    num_listed_ = 0;
  }

  // Row r in place: scores to weights; returns the size of its support.
  template <class Curve>
  int64_t dense_row(const Curve& curve, int64_t r, float shift) {
    float* row = scores_.scores(r);
    const int64_t n = visible(r), padded = scores_.padded(r);
    if (!Curve::kEverywhere && padded >= kSampledVecs * lanes_) {
      shift = sampled_shift(curve, row, padded, n, max_[r], shift);
    } else if (!Curve::kEverywhere) {
      shift = std::min(shift, curve.largest_shift(static_cast<float>(n)));
    }
    guess_ = solve_row(curve, row, padded, max_[r], shift, list_.s.data(), list_.u.data(), row);
    std::fill(row + padded, row + scores_.padded(tile_.rows - 1), 0.0f);
    dense_[r] = true;
    const int64_t support = count_positive(row, padded);
    if (support_ != nullptr) {
      if (support <= entmax_support_capacity(p_.keys)) {
        // slot kGroup - 1 is free: a full group has been solved
        int32_t* key = keys(kGroup - 1);
        select_keys(row, padded, 0.0f, list_.bits.data(), list_.words.data(), key);
        for (int64_t i = 0; i < support; i++) weights(kGroup - 1)[i] = row[key[i]];
      }
      keep(r, threshold(r, guess_), support, keys(kGroup - 1), weights(kGroup - 1));
    }
    if (p_.dropout_p > 0) {
      const uint64_t key = row_key(r);
      for (int64_t s = 0; s < n; s++) row[s] *= dropout_factor(p_, key, s);
    }
    return support;
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
      const float step = row_step(curve, sums, share);
      shift = std::clamp(shift + step, 0.0f, largest);
      if (std::fabs(step) < 0.02f) break;
    }
    return shift;
  }

  // alpha > 2: the candidates in double.
  void wide_rows() {
    const float width = static_cast<float>(1 / e_);
    for (int64_t r = 0; r < tile_.rows; r++) {
      const int64_t n =
          max_[r] == -kInfinity ? 0 : candidates(r, lowest_candidate(max_[r], 0.0f, width), 0);
      const float* row = scores_.scores(r);
      list_.wide_scores.resize(n);
      for (int64_t i = 0; i < n; i++) list_.wide_scores[i] = row[keys(0)[i]];
      const entmax::Threshold<double> wide =
          entmax::solve(list_.wide_scores.data(), n, e_, list_.wide_scratch);
      for (int64_t i = 0; i < n; i++) {
        weights(0)[i] = static_cast<float>(wide.weight(list_.wide_scores[i]));
      }
      const int64_t support = drop_zeros(weights(0), keys(0), n);
      keep(r, wide, support, keys(0), weights(0));
      add_values(r, support, keys(0), weights(0));
    }
  }

  entmax::Threshold<float> threshold(int64_t r, float shift) const {
    entmax::Threshold<float> row{static_cast<float>(e_)};
    row.max = max_[r];
    row.shift = shift;
    return row;
  }

  uint64_t row_key(int64_t r) const {
    return dropout_row_key(p_.dropout_seed, tile_.b, tile_.h, tile_.t0 + r);
  }

  template <class Threshold>
  void keep(int64_t r, const Threshold& threshold, int64_t n, const int32_t* keys,
            const float* weights) const {
    if (support_ == nullptr) return;
    KeptRow(p_, *support_, tile_.b, tile_.h, tile_.t0 + r)
        .store(
            threshold, n, [=](int64_t i) { return keys[i]; },
            [=](int64_t i) { return weights[i]; });
  }

  // out_ of row r += weights times the values of keys.
  void add_values(int64_t r, int64_t n, int32_t* keys, const float* weights) {
    if (p_.dropout_p > 0) {
      float* kept = list_.dropped.data();
      const uint64_t row = row_key(r);
      int64_t num_kept = 0;  // what is dropped is not read
      for (int64_t i = 0; i < n; i++) {
        kept[num_kept] = weights[i] * dropout_factor(p_, row, keys[i]);
        keys[num_kept] = keys[i];
        num_kept += kept[num_kept] > 0;
      }
      n = num_kept;
      weights = kept;
    }
    for_vec_panels(out_stride_ / lanes_, [&](auto nv, int64_t j) HEDGEROW_FUNCTOR {
      add_rows<decltype(nv)::value>(value_rows_ + j * lanes_, values_.stride(), keys, weights, n,
                                    out_ + r * out_stride_ + j * lanes_);
    });
  }

  // out_ += weights v for runs of dense rows.
  void multiply_dense_rows() {
    int64_t end;
    for (int64_t begin = 0; begin < tile_.rows; begin = end) {
      end = begin + 1;
      if (!dense_[begin]) continue;
      while (end < tile_.rows && dense_[end]) end++;
      const float* v = values_.pack_clean(visible(end - 1));
      for_vec_panels(out_stride_ / lanes_, [&](auto nv, int64_t j) HEDGEROW_FUNCTOR {
        for_row_tiles(end - begin, [&](auto mr, int64_t i) HEDGEROW_FUNCTOR {
          const int64_t r = begin + i;
          gemm_tile<decltype(mr)::value, decltype(nv)::value>(
              visible(r + decltype(mr)::value - 1), scores_.scores(r), scores_.stride(), 1,
              v + j * lanes_, out_stride_, out_ + r * out_stride_ + j * lanes_, out_stride_, true);
        });
      });
      for (int64_t r = begin; r < end; r++) add_bad_values(r);
    }
  }

  // out_ of the dense row r += values that are not finite, where they have weight.
  void add_bad_values(int64_t r) {
    for (const int64_t s : values_.bad()) {
      const float w = s < visible(r) ? scores_.scores(r)[s] : 0.0f;
      const int64_t at = row_index(p_.v, tile_.b, tile_.h / group_size(p_), s);
      for (int64_t i = 0; w != 0 && i < p_.value_width; i++) {
        out_[r * out_stride_ + i] +=
            w * static_cast<float>(load_element(p_.dtype, p_.v.data, at + i));
      }
    }
  }

  const EntmaxAttentionParams& p_;
  const EntmaxSupport* support_;
  const ForwardTile& tile_;
  ListScratch& list_;
  double e_;
  int64_t lanes_, out_stride_;
  ScreenScratch& screening_;
  HeadPanels keys_;
  HeadRows key_rows_;
  ScreenedKeys screened_keys_;
  HeadRows values_;
  ScoreTile scores_;
  bool screened_ = false;             // whether the tile's scores are
  double candidates_ = 0, seen_ = 0;  // so far in the tile
  const float* key_data_ = nullptr;
  const float* value_rows_ = nullptr;
  float* out_;
  int64_t queries_[kRowTile];
  float max_[kRowTile] = {};
  bool dense_[kRowTile] = {};
  float guess_ = 0;  // lambda - max of the last dense row
  int64_t num_listed_ = 0;
  Listed listed_[kGroup];
  float listed_shifts_[kGroup] = {};
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
