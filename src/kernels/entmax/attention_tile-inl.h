// A tile of scores: a few query rows of one head against all the keys they see, in L2, with running
// maxima per lane. Include after hwy/foreach_target.h.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_ENTMAX_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_ENTMAX_ATTENTION_TILE_INL_H_
#undef HEDGEROW_KERNELS_ENTMAX_ATTENTION_TILE_INL_H_
#else
#define HEDGEROW_KERNELS_ENTMAX_ATTENTION_TILE_INL_H_
#endif

#include "kernels/entmax/attention_internal.h"
#include "kernels/softmax/softmax_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {

// One register tile of C = A B; highest[row][panel width] takes the maxima of C's panels.
template <int MR>
HWY_NOINLINE HWY_MAYBE_UNUSED static void highest_tile(int64_t depth, const float* HWY_RESTRICT a,
                                                       int64_t a_row, const float* HWY_RESTRICT b,
                                                       float* HWY_RESTRICT c, int64_t c_row,
                                                       float* HWY_RESTRICT highest) {
  const FloatTag d;
  const int64_t lanes = float_lanes(), pw = panel_width();
  multiply_tile<MR, kTileVecs>(
      depth, a, a_row, 1, b, pw, [=](int, int) HEDGEROW_FUNCTOR { return hn::Zero(d); },
      [=](int r, int j, FloatVec x) HEDGEROW_FUNCTOR {
        hn::StoreU(x, d, c + r * c_row + j * lanes);
        float* top = highest + r * pw + j * lanes;
        hn::StoreU(hn::Max(hn::LoadU(d, top), x), d, top);
      });
}

// The rows of one head of a tensor, transposed into panels as far as asked for.
class HeadPanels {
 public:
  HeadPanels(DType dtype, const ConstTensor& x, int64_t rows, int64_t width, PanelScratch& scratch)
      : dtype_(dtype), x_(x), rows_(rows), width_(width), scratch_(scratch) {}

  void select(int64_t b, int64_t kv_head) {
    if (scratch_.batch == b && scratch_.kv_head == kv_head) return;
    scratch_.batch = b;
    scratch_.kv_head = kv_head;
    scratch_.done = 0;
  }
  // Makes the panels of rows [0, end) ready.
  void pack(int64_t end) {
    const int64_t pw = panel_width(), begin = scratch_.done;
    end = std::min(rows_, round_up(end, pw));
    if (begin >= end) return;
    reserve(scratch_.panels, round_up(rows_, pw) * width_);
    pack_panels(dtype_, x_, scratch_.batch, scratch_.kv_head, begin, end, width_,
                scratch_.panels.data(), reserve(scratch_.staging, pw * width_));
    scratch_.done = end;
  }
  // The panel that starts with row s.
  const float* at(int64_t s) const { return scratch_.panels.data() + s * width_; }

 private:
  DType dtype_;
  const ConstTensor& x_;
  int64_t rows_, width_;
  PanelScratch& scratch_;
};

// The rows of one head of a tensor as float32 in whole vectors: where they lie if they are that,
// else copied as far as asked for.
class HeadRows {
 public:
  HeadRows(DType dtype, const ConstTensor& x, int64_t rows, int64_t width, RowScratch& scratch)
      : dtype_(dtype),
        x_(x),
        rows_(rows),
        width_(width),
        padded_(round_up(width, float_lanes())),
        in_place_(dtype == DType::kFloat32 && padded_ == width),
        scratch_(scratch) {}

  void select(int64_t b, int64_t kv_head) {
    if (scratch_.batch == b && scratch_.kv_head == kv_head) return;
    scratch_.batch = b;
    scratch_.kv_head = kv_head;
    scratch_.rows_done = scratch_.clean_done = 0;
    scratch_.bad.clear();
  }

  // Rows [0, end), stride() apart, as they are.
  const float* pack(int64_t end) {
    if (in_place_) return row<float>(x_, scratch_.batch, scratch_.kv_head, 0);
    float* rows = reserve(scratch_.rows, rows_ * padded_);
    for (int64_t s = scratch_.rows_done; s < end; s++) load(s, rows + s * padded_);
    scratch_.rows_done = std::max(scratch_.rows_done, end);
    return rows;
  }
  int64_t stride() const { return in_place_ ? x_.row_stride : padded_; }

  // Rows [0, end), padded() apart, for products in which an excluded row meets a factor of 0: those
  // that are not finite are zeros.
  const float* pack_clean(int64_t end) {
    float* rows = reserve(scratch_.clean, rows_ * padded_);
    for (int64_t s = scratch_.clean_done; s < end; s++) {
      float* to = rows + s * padded_;
      load(s, to);
      if (all_finite(to, width_)) continue;
      std::fill(to, to + padded_, 0.0f);
      scratch_.bad.push_back(s);
    }
    scratch_.clean_done = std::max(scratch_.clean_done, end);
    return rows;
  }
  int64_t padded() const { return padded_; }
  // Rows that pack_clean zeroed.
  const std::vector<int64_t>& bad() const { return scratch_.bad; }

 private:
  void load(int64_t s, float* to) const {
    load_row(dtype_, row_pointer(dtype_, x_, scratch_.batch, scratch_.kv_head, s), width_, padded_,
             1.0f, to);
  }

  DType dtype_;
  const ConstTensor& x_;
  int64_t rows_, width_, padded_;
  bool in_place_;
  RowScratch& scratch_;
};

// The keys of one head for screening, packed as far as asked for.
class ScreenedKeys {
 public:
  ScreenedKeys(const EntmaxAttentionParams& p, ScreenScratch& scratch)
      : p_(p), pairs_(divide_up(p.width, 2)), scratch_(scratch) {}

  void select(int64_t b, int64_t kv_head) {
    if (scratch_.batch == b && scratch_.kv_head == kv_head) return;
    scratch_.batch = b;
    scratch_.kv_head = kv_head;
    scratch_.done = 0;
  }

  // [panel][pair][kScreenPanel]; keys that are not finite count as zeros: they are excluded.
  void pack(int64_t end) {
    const int64_t begin = scratch_.done;
    end = std::min(p_.keys, round_up(end, kScreenPanel));
    if (begin >= end) return;
    const int64_t size = round_up(p_.keys, kScreenPanel) * pairs_;
    if (scratch_.panels.size() < size) scratch_.panels.resize(size);
    if (scratch_.q.size() < kRowTile * pairs_) scratch_.q.resize(kRowTile * pairs_);
    float* key = reserve(scratch_.key, p_.width);
    float* staging = reserve(scratch_.staging, kScreenPanel * pairs_);
    float* longest = reserve(scratch_.longest, divide_up(p_.keys, kScreenPanel));
    for (int64_t s = begin; s < end; s += kScreenPanel) {
      const int64_t panel = s / kScreenPanel;
      longest[panel] = panel > 0 ? longest[panel - 1] : 0.0f;
      std::fill(staging, staging + kScreenPanel * pairs_, 0.0f);
      for (int64_t i = 0; i < std::min(kScreenPanel, end - s); i++) {
        load_row(p_.dtype, row_pointer(p_.dtype, p_.k, scratch_.batch, scratch_.kv_head, s + i),
                 p_.width, p_.width, 1.0f, key);
        if (!all_finite(key, p_.width)) continue;
        longest[panel] = std::max(longest[panel], std::sqrt(dot(key, key, p_.width)));
        screen_pairs(key, p_.width, reinterpret_cast<uint32_t*>(staging) + i * pairs_);
      }
      // pairs are moved as 32 bits, whatever they are
      transpose(kScreenPanel, pairs_, staging, pairs_,
                reinterpret_cast<float*>(scratch_.panels.data()) + s * pairs_, kScreenPanel);
    }
    scratch_.done = end;
  }

  // Returns the bound of the errors of its scores of keys [0, end), end > 0.
  float load_query(int64_t r, const float* q, int64_t end) {
    screen_pairs(q, p_.width, scratch_.q.data() + r * pairs_);
    // of the panels that the tile sees, not of those that happen to be packed
    const float longest = scratch_.longest[(end - 1) / kScreenPanel];
    return screen_error(std::sqrt(dot(q, q, p_.width)) * longest, p_.width);
  }
  void scores(int64_t rows, int64_t s, float* c, int64_t c_row, float* highest) const {
    screen_scores(rows, pairs_, scratch_.q.data(), scratch_.panels.data() + s * pairs_, c, c_row,
                  highest);
  }

 private:
  const EntmaxAttentionParams& p_;
  int64_t pairs_;
  ScreenScratch& scratch_;
};

// Scores of up to kRowTile rows of head (b, h) against the head's packed keys.
class ScoreTile {
 public:
  ScoreTile(const EntmaxAttentionParams& p, TileScratch& scratch)
      : p_(p), lanes_(float_lanes()), stride_(round_up(p.keys, panel_width()) + 16) {
    q_ = reserve(scratch.q, kRowTile * p.width);
    scores_ = reserve(scratch.scores, kRowTile * stride_);
    highest_ = reserve(scratch.highest, 2 * kRowTile * panel_width());
    bias_ = reserve(scratch.bias, stride_);
  }

  // Rows t[0 .. rows), ascending. Every score that the row may not see becomes -inf.
  void compute(HeadPanels& keys, int64_t b, int64_t h, const int64_t* t, int64_t rows) {
    const int64_t pw = panel_width(), end = causal_keys(p_, t[rows - 1]);
    keys.pack(end);
    for (int64_t r = 0; r < rows; r++) {
      visible_[r] = causal_keys(p_, t[r]);
      load_row(p_.dtype, row_pointer(p_.dtype, p_.q, b, h, t[r]), p_.width, p_.width,
               static_cast<float>(p_.scale), q_ + r * p_.width);
    }
    std::fill(highest_, highest_ + kRowTile * pw, -kInfinity);
    // panels that every row sees whole
    const int64_t full = p_.mask.kind == MaskKind::kNone ? visible_[0] / pw * pw : 0;
    for (int64_t s = 0; s < full; s += pw) {
      for_row_tiles(rows, [&](auto mr, int64_t r) HEDGEROW_FUNCTOR {
        highest_tile<decltype(mr)::value>(p_.width, q_ + r * p_.width, p_.width, keys.at(s),
                                          scores_ + r * stride_ + s, stride_, highest_ + r * pw);
      });
    }
    for (int64_t s = full; s < end; s += pw) {
      const int64_t first = first_row_seeing(s, rows);
      gemm(rows - first, kTileVecs, p_.width, q_ + first * p_.width, p_.width, 1, keys.at(s), pw,
           scores_ + first * stride_ + s, stride_, false);
    }
    for (int64_t r = 0; r < rows; r++) exclude(b, h, t[r], r, full);
  }

  // The same by bfloat16 products, without floating masks; scores err by up to error(row).
  void screen(ScreenedKeys& keys, int64_t b, int64_t h, const int64_t* t, int64_t rows) {
    const int64_t end = causal_keys(p_, t[rows - 1]);
    keys.pack(end);
    for (int64_t r = 0; r < rows; r++) {
      visible_[r] = causal_keys(p_, t[r]);
      load_row(p_.dtype, row_pointer(p_.dtype, p_.q, b, h, t[r]), p_.width, p_.width,
               static_cast<float>(p_.scale), q_ + r * p_.width);
      error_[r] = keys.load_query(r, q_ + r * p_.width, end);
    }
    std::fill(highest_, highest_ + kRowTile * kScreenPanel, -kInfinity);
    const int64_t full =
        p_.mask.kind == MaskKind::kNone ? visible_[0] / kScreenPanel * kScreenPanel : 0;
    for (int64_t s = 0; s < end; s += kScreenPanel) {
      // what is masked below must not count among the maxima: those go to spare rows
      keys.scores(rows, s, scores_ + s, stride_,
                  s < full ? highest_ : highest_ + kRowTile * kScreenPanel);
    }
    for (int64_t r = 0; r < rows; r++) exclude(b, h, t[r], r, full);
  }
  float error(int64_t r) const { return error_[r]; }
  // Scaled query of row r, [D].
  const float* query(int64_t r) const { return q_ + r * p_.width; }

  int64_t visible(int64_t r) const { return visible_[r]; }
  // visible(r) as a multiple of the lanes; scores between them are -inf.
  int64_t padded(int64_t r) const { return round_up(visible_[r], lanes_); }
  float* scores(int64_t r) { return scores_ + r * stride_; }
  int64_t stride() const { return stride_; }
  // Maxima per lane, [panel width]: entries of the row, among them its largest, and -inf.
  const float* highest(int64_t r) const { return highest_ + r * panel_width(); }
  float max(int64_t r) const {
    const FloatTag d;
    FloatVec top = hn::LoadU(d, highest(r));
    for (int j = 1; j < kTileVecs; j++) top = hn::Max(top, hn::LoadU(d, highest(r) + j * lanes_));
    return reduce_max(top);
  }

 private:
  int64_t first_row_seeing(int64_t s, int64_t rows) const {
    int64_t r = 0;
    while (r < rows && visible_[r] <= s) r++;
    return r;
  }

  // Masks and causality of row r from key `begin` on, with the maxima.
  void exclude(int64_t b, int64_t h, int64_t t, int64_t r, int64_t begin) {
    const FloatTag d;
    const int64_t n = visible_[r], pw = panel_width();
    const bool masked = p_.mask.kind != MaskKind::kNone && n > begin;
    if (masked) {
      mask_row(p_.mask, b, h, t, begin, n - begin, bias_ + begin);
      std::fill(bias_ + n, bias_ + padded(r), 0.0f);
    }
    for (int64_t s = begin; s < n; s += lanes_) {
      FloatVec x = hn::LoadU(d, scores(r) + s);
      if (masked) x = add_bias(x, hn::LoadU(d, bias_ + s));
      if (s + lanes_ > n) x = hn::IfThenElse(hn::FirstN(d, n - s), x, hn::Set(d, -kInfinity));
      hn::StoreU(x, d, scores(r) + s);
      float* top = highest_ + r * pw + s % pw;
      hn::StoreU(hn::Max(hn::LoadU(d, top), x), d, top);
    }
  }

  const EntmaxAttentionParams& p_;
  int64_t lanes_, stride_;
  float *q_, *scores_, *highest_, *bias_;
  int64_t visible_[kRowTile];
  float error_[kRowTile] = {};
};

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_ENTMAX_ATTENTION_TILE_INL_H_
