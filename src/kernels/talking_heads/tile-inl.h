// A tile of query rows of all heads: scores, mixing, normalising. Include after
// hwy/foreach_target.h.
//
// A panel of kHeadsPanel keys lies [head][row][kHeadsPanel], heads `head_stride()` floats apart:
// not a multiple of 4 KB, or all heads would share a few sets of the cache.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_TALKING_HEADS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_TALKING_HEADS_TILE_INL_H_
#undef HEDGEROW_KERNELS_TALKING_HEADS_TILE_INL_H_
#else
#define HEDGEROW_KERNELS_TALKING_HEADS_TILE_INL_H_
#endif

#include "base/counter_rng.h"
#include "kernels/softmax/softmax_tile-inl.h"
#include "kernels/talking_heads/talking_heads_internal.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {

// Logits may exceed their row's reference by this much before it is raised: 2^30.
inline constexpr float kLogitHeadroom = 20.0f;

// Keys s0 .. + n of the tile, the last that any of its rows may see; n of them in `vecs` vectors.
struct Panel {
  int64_t index, s0, n, vecs;
};

// A projection of heads as a tile uses it: rows of the tile have matrices [in][out] of their own
// (x terms) where row_step is not 0; key_terms [panel][in * out][kHeadsPanel] (m terms) or nullptr.
struct Mixing {
  const float* matrix;
  int64_t row_step, in, out;
  const float* key_terms;
};

// to[g][0 .. vecs vectors) = sum_h terms[h * from_step + g * to_step][..] from[h][..] over one row.
HWY_MAYBE_UNUSED static void mix_key_terms(const float* HWY_RESTRICT terms, int64_t to_step,
                                           int64_t from_step, int64_t num_to, int64_t num_from,
                                           const float* HWY_RESTRICT from, float* HWY_RESTRICT to,
                                           int64_t head_stride, int64_t vecs) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  for (int64_t j = 0; j < vecs * lanes; j += lanes) {
    for_row_tiles(num_to, [&](auto mr, int64_t g) HEDGEROW_FUNCTOR {
      constexpr int kRows = decltype(mr)::value;
      const float* HWY_RESTRICT term = terms + g * to_step * kHeadsPanel + j;
      FloatVec sum[kRows];
      HEDGEROW_UNROLL
      for (int i = 0; i < kRows; i++) sum[i] = hn::Zero(d);
      for (int64_t h = 0; h < num_from; h++) {
        const FloatVec x = hn::LoadU(d, from + h * head_stride + j);
        HEDGEROW_UNROLL
        for (int i = 0; i < kRows; i++) {
          sum[i] = hn::MulAdd(hn::LoadU(d, term + i * to_step * kHeadsPanel), x, sum[i]);
        }
        term += from_step * kHeadsPanel;
      }
      HEDGEROW_UNROLL
      for (int i = 0; i < kRows; i++) hn::StoreU(sum[i], d, to + (g + i) * head_stride + j);
    });
  }
}

// One register tile of mixed logits relative to their references, as weights: references and lane
// sums of consecutive heads are ref_step and sum_step floats apart. Returns the highest of them.
template <int MR>
HWY_NOINLINE HWY_MAYBE_UNUSED static FloatVec mix_exp_tile(
    int64_t depth, const float* HWY_RESTRICT a, int64_t a_depth, const float* HWY_RESTRICT b,
    int64_t b_row, const float* HWY_RESTRICT reference, int64_t ref_step, float* HWY_RESTRICT sums,
    int64_t sum_step, float* HWY_RESTRICT c, int64_t c_row) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  FloatVec highest = hn::Set(d, -kInfinity);
  FloatVec sum[MR];
  HEDGEROW_UNROLL
  for (int r = 0; r < MR; r++) sum[r] = hn::LoadU(d, sums + r * sum_step);
  multiply_tile<MR, kTileVecs>(
      depth, a, 1, a_depth, b, b_row,
      [=](int r, int) HEDGEROW_FUNCTOR { return hn::Set(d, -reference[r * ref_step]); },
      [&](int r, int j, FloatVec x) HEDGEROW_FUNCTOR {
        highest = hn::Max(highest, x);
        const FloatVec w = exp2_vec(hn::Mul(x, hn::Set(d, kLog2e)));
        hn::StoreU(w, d, c + r * c_row + j * lanes);
        sum[r] = hn::Add(sum[r], w);
      });
  HEDGEROW_UNROLL
  for (int r = 0; r < MR; r++) hn::StoreU(sum[r], d, sums + r * sum_step);
  return highest;
}

// The rows of a tile: their queries, mixing matrices and weights W.
class TileRows {
 public:
  // keep_scores: J of every panel stays, for gradients.
  TileRows(const TalkingHeadsParams& p, const PackedHeads& packed, int64_t tile_rows,
           bool keep_scores, HeadsScratch& scratch)
      : p_(p),
        packed_(packed),
        scratch_(scratch),
        mask_(mask_view(p)),
        lanes_(float_lanes()),
        tile_rows_(tile_rows),
        head_stride_(tile_rows * kHeadsPanel + 16),
        keep_scores_(keep_scores) {
    const int64_t panels = num_panels(p), heads = p.heads * tile_rows;
    q_ = reserve(scratch.q, p.key_heads * tile_rows * packed.key_stride);
    scores_ = reserve(scratch.scores, (keep_scores ? panels : 1) * p.key_heads * head_stride_);
    weights_ = reserve(scratch.weights, panels * p.heads * head_stride_);
    reference_ = reserve(scratch.reference, heads);
    sums_ = reserve(scratch.sums, heads * lanes_);
    bias_ = reserve(scratch.bias, kHeadsPanel);
  }

  void begin(const HeadsTile& tile) {
    tile_ = tile;
    end_ = causal_keys(mask_, tile.t0 + tile.rows - 1);
    const int64_t stride = packed_.key_stride;
    for (int64_t a = 0; a < p_.key_heads; a++) {
      for (int64_t r = 0; r < tile.rows; r++) {
        load_row(p_.dtype, row_pointer(p_.dtype, p_.q, tile.b, a, tile.t0 + r), p_.width, stride,
                 static_cast<float>(p_.scale), q_ + (a * tile_rows_ + r) * stride);
      }
    }
    logits_ = mixing(p_.logits_proj, p_.x_logits, packed_.m_logits, p_.key_heads, p_.heads,
                     scratch_.logits_matrix);
    std::fill(reference_, reference_ + p_.heads * tile_rows_, -kInfinity);
    std::fill(sums_, sums_ + p_.heads * tile_rows_ * lanes_, 0.0f);
  }

  // W of all panels: with softmax up to a factor for each row, whose lane sums are in sums().
  void weigh() {
    for (int64_t s = 0; s < end_; s += kHeadsPanel) {
      const Panel panel = panel_at(s);
      scores(panel);
      if (all_see(panel) && fused_weights(panel)) continue;
      mixed_logits(panel);
      for (int64_t r = 0; r < tile_.rows; r++) finish_row(panel, r);
    }
    if (p_.alpha != nullptr) entmax_rows();
  }

  Panel panel_at(int64_t s0) const {
    const int64_t n = std::min(kHeadsPanel, end_ - s0);
    return {s0 / kHeadsPanel, s0, n, divide_up(n, lanes_)};
  }
  // Where the panel lies in PackedHeads.
  int64_t packed_at(const Panel& panel) const { return tile_.b * num_panels(p_) + panel.index; }
  int64_t end() const { return end_; }
  int64_t head_stride() const { return head_stride_; }
  int64_t tile_rows() const { return tile_rows_; }
  const HeadsTile& tile() const { return tile_; }
  const Mixing& logits() const { return logits_; }
  const float* q(int64_t a) const { return q_ + a * tile_rows_ * packed_.key_stride; }
  float* q_row(int64_t a, int64_t r) { return q_ + (a * tile_rows_ + r) * packed_.key_stride; }
  // J [Hk] and W [H] of the panel.
  float* scores_of(const Panel& panel) const {
    return scores_ + (keep_scores_ ? panel.index : 0) * p_.key_heads * head_stride_;
  }
  float* weights_of(const Panel& panel) const {
    return weights_ + panel.index * p_.heads * head_stride_;
  }
  // Sum of row (h, r) of W: 0 only of a row that sees nothing.
  float row_sum(int64_t h, int64_t r) const {
    return reduce_sum(hn::LoadU(FloatTag(), sums_ + (h * tile_rows_ + r) * lanes_));
  }
  // What makes it 1.
  float row_factor(int64_t h, int64_t r) const {
    const float sum = row_sum(h, r);
    return sum == 0.0f ? 0.0f : 1.0f / sum;
  }
  float reference(int64_t h, int64_t r) const { return reference_[h * tile_rows_ + r]; }

  // Keys of the panel that row r sees but for the mask.
  int64_t visible(const Panel& panel, int64_t r) const {
    return std::clamp<int64_t>(causal_keys(mask_, tile_.t0 + r) - panel.s0, 0, panel.n);
  }
  // The mask of row r and head h at the panel's keys in bias(), which keeps it for other heads.
  const float* bias_row(const Panel& panel, int64_t h, int64_t r) {
    if (h == 0 || p_.mask.head_stride != 0) {
      mask_row(p_.mask, tile_.b, h, tile_.t0 + r, panel.s0, panel.n, bias_);
      std::fill(bias_ + panel.n, bias_ + panel.vecs * lanes_, 0.0f);
    }
    return bias_;
  }

  // J of the panel.
  void scores(const Panel& panel) {
    float* to = p_.logits_proj ? scores_of(panel) : weights_of(panel);
    if (keep_scores_) to = scores_of(panel);
    for (int64_t a = 0; a < p_.key_heads; a++) {
      const int64_t g = a / (p_.key_heads / p_.key_kv_heads);
      const int64_t at = packed_at(panel) * p_.key_kv_heads + g;
      multiply_panel(panel, p_.width, q(a), packed_.key_stride,
                     packed_.keys.data() + at * kHeadsPanel * p_.width, to + a * head_stride_);
    }
  }

  // L, less the mask, of the panel from J.
  void mixed_logits(const Panel& panel) {
    float* to = weights_of(panel);
    if (p_.logits_proj) {
      mix(logits_, panel, scores_of(panel), to);
    } else if (keep_scores_) {
      std::copy(scores_of(panel), scores_of(panel) + p_.heads * head_stride_, to);
    }
  }

  // to [row][kHeadsPanel] = a [row][depth] times a panel [kHeadsPanel / pw][depth][pw].
  void multiply_panel(const Panel& panel, int64_t depth, const float* a, int64_t a_row,
                      const float* b, float* to) const {
    const int64_t pw = panel_width();
    for (int64_t s = 0; s < panel.n; s += pw) {
      gemm(tile_.rows, std::min<int64_t>(kTileVecs, panel.vecs - s / lanes_), depth, a, a_row, 1,
           b + s * depth, pw, to + s, kHeadsPanel, false);
    }
  }

  // to [out] = the projection of from [in]; transposed: the other way.
  void mix(const Mixing& m, const Panel& panel, const float* from, float* to,
           bool transposed = false) const {
    const int64_t to_step = transposed ? m.out : 1, from_step = transposed ? 1 : m.out;
    const int64_t num_to = transposed ? m.in : m.out, num_from = transposed ? m.out : m.in;
    for (int64_t r = 0; r < tile_.rows; r++) {
      const float* x = from + r * kHeadsPanel;
      float* y = to + r * kHeadsPanel;
      if (m.key_terms) {
        mix_key_terms(m.key_terms + panel.index * m.in * m.out * kHeadsPanel, to_step, from_step,
                      num_to, num_from, x, y, head_stride_, panel.vecs);
      }
      gemm(num_to, panel.vecs, num_from, m.matrix + r * m.row_step, to_step, from_step, x,
           head_stride_, y, head_stride_, m.key_terms != nullptr);
    }
  }

  // A projection with its dynamic terms, for the rows of the tile.
  Mixing mixing(const void* fixed, const void* x, const AlignedBuffer<float>& m, int64_t in,
                int64_t out, AlignedBuffer<float>& matrix) const {
    const int64_t size = in * out;
    const float* proj = static_cast<const float*>(fixed);
    Mixing mixing{proj, 0, in, out, nullptr};
    if (m.size() > 0) mixing.key_terms = m.data() + tile_.b * num_panels(p_) * size * kHeadsPanel;
    if (x == nullptr) return mixing;
    const float* terms = static_cast<const float*>(x) + (tile_.b * p_.queries + tile_.t0) * size;
    float* rows = reserve(matrix, tile_rows_ * size);
    for (int64_t i = 0; i < tile_.rows * size; i++) rows[i] = proj[i % size] + terms[i];
    mixing.matrix = rows;
    mixing.row_step = size;
    return mixing;
  }

  // Row r of a projection with x terms, whose matrices `rows` holds, becomes 0.
  void clear_matrix(const Mixing& m, int64_t r, AlignedBuffer<float>& rows) const {
    if (m.row_step != 0) std::fill_n(rows.data() + r * m.row_step, m.row_step, 0.0f);
  }

  // values [head][row][kHeadsPanel] of the value heads at the panel: as dropout leaves them.
  void drop(const Panel& panel, float* values) const {
    const uint32_t threshold = dropout_threshold(p_.dropout_p);
    const float kept = static_cast<float>(1.0 / (1.0 - p_.dropout_p));
    for (int64_t c = 0; c < p_.value_heads; c++) {
      for (int64_t r = 0; r < tile_.rows; r++) {
        const uint64_t key = dropout_row_key(p_.dropout_seed, tile_.b, c, tile_.t0 + r);
        float* row = values + c * head_stride_ + r * kHeadsPanel;
        for (int64_t i = 0; i < panel.n; i++) {
          row[i] = dropout_bits(key, panel.s0 + i) >= threshold ? row[i] * kept : 0.0f;
        }
      }
    }
  }

  // Row (h, r) of W times a factor, in all panels or the first ones.
  void scale_row(int64_t h, int64_t r, float factor) {
    scale_row(h, r, factor, divide_up(end_, kHeadsPanel));
  }
  void scale_row(int64_t h, int64_t r, float factor, int64_t panels) {
    for (int64_t i = 0; i < panels; i++) {
      float* row = weights_ + (i * p_.heads + h) * head_stride_ + r * kHeadsPanel;
      for (int64_t j = 0; j < kHeadsPanel; j++) row[j] *= factor;
    }
  }

  // One row of a head, all its keys, out of panels [panel][heads][row] and back.
  void gather_row(const float* panels, int64_t heads, int64_t h, int64_t r, int64_t n,
                  float* HWY_RESTRICT to) const {
    for (int64_t s = 0; s < n; s += kHeadsPanel) {
      const float* from = panels + (s / kHeadsPanel * heads + h) * head_stride_ + r * kHeadsPanel;
      std::copy(from, from + std::min(kHeadsPanel, n - s), to + s);
    }
  }
  // What lies behind the row's n keys, up to the tile's, becomes 0.
  void scatter_row(const float* HWY_RESTRICT from, int64_t heads, int64_t h, int64_t r, int64_t n,
                   float* panels) const {
    for (int64_t s = 0; s < end_; s += kHeadsPanel) {
      float* to = panels + (s / kHeadsPanel * heads + h) * head_stride_ + r * kHeadsPanel;
      const int64_t count = std::clamp<int64_t>(n - s, 0, kHeadsPanel);
      std::copy(from + s, from + s + count, to);
      std::fill(to + count, to + kHeadsPanel, 0.0f);
    }
  }

 private:
  // Whether every row sees every key of a whole panel, with a softmax that has its references.
  bool all_see(const Panel& panel) const {
    return p_.mask.kind == MaskKind::kNone && p_.alpha == nullptr && panel.n == kHeadsPanel &&
           visible(panel, 0) == kHeadsPanel && panel.index > 0;
  }

  // Weights of the panel without a search for maxima; false if a logit left the headroom: then the
  // lane sums stand as before, and the panel's weights are to be made again.
  bool fused_weights(const Panel& panel) {
    if (p_.logits_proj == nullptr || logits_.key_terms != nullptr) return false;
    const float* from = scores_of(panel);
    float* to = weights_of(panel);
    FloatVec highest = hn::Set(FloatTag(), -kInfinity);
    for (int64_t r = 0; r < tile_.rows; r++) {
      const float* matrix = logits_.matrix + r * logits_.row_step;
      for (int64_t j = 0; j < kHeadsPanel; j += panel_width()) {
        const int64_t at = r * kHeadsPanel + j;
        for_row_tiles(p_.heads, [&](auto mr, int64_t h) HEDGEROW_FUNCTOR {
          highest = hn::Max(highest, mix_exp_tile<decltype(mr)::value>(
                                         p_.key_heads, matrix + h, p_.heads, from + at,
                                         head_stride_, reference_ + h * tile_rows_ + r, tile_rows_,
                                         sums_ + (h * tile_rows_ + r) * lanes_, tile_rows_ * lanes_,
                                         to + h * head_stride_ + at, head_stride_));
        });
      }
    }
    if (reduce_max(highest) <= kLogitHeadroom) return true;
    for (int64_t h = 0; h < p_.heads; h++) {
      for (int64_t r = 0; r < tile_.rows; r++) sum_again(h, r, panel.index);
    }
    return false;
  }

  // Lane sums of the weights of row (h, r) in the panels before `end`.
  void sum_again(int64_t h, int64_t r, int64_t end) {
    const FloatTag d;
    FloatVec sum = hn::Zero(d);
    for (int64_t i = 0; i < end; i++) {
      const float* row = weights_ + (i * p_.heads + h) * head_stride_ + r * kHeadsPanel;
      for (int64_t j = 0; j < kHeadsPanel; j += lanes_) sum = hn::Add(sum, hn::LoadU(d, row + j));
    }
    hn::StoreU(sum, d, sums_ + (h * tile_rows_ + r) * lanes_);
  }

  // Logits of row r, all heads, to weights (softmax) or with their mask (entmax).
  void finish_row(const Panel& panel, int64_t r) {
    const int64_t seen = visible(panel, r);
    for (int64_t h = 0; h < p_.heads; h++) {
      float* row = weights_of(panel) + h * head_stride_ + r * kHeadsPanel;
      if (p_.mask.kind != MaskKind::kNone) {
        const FloatTag d;
        const float* bias = bias_row(panel, h, r);
        for (int64_t i = 0; i < panel.n; i += lanes_) {
          hn::StoreU(add_bias(hn::LoadU(d, row + i), hn::LoadU(d, bias + i)), d, row + i);
        }
      }
      if (p_.alpha != nullptr) continue;
      weigh_row(panel, h, r, row, seen);
      std::fill(row + seen, row + kHeadsPanel, 0.0f);
    }
  }

  // row[0 .. n): logits to weights relative to the row's reference, which the first key that it
  // sees sets and which is raised when a logit leaves the headroom.
  void weigh_row(const Panel& panel, int64_t h, int64_t r, float* HWY_RESTRICT row, int64_t n) {
    if (n == 0) return;
    const FloatTag d;
    std::fill(row + n, row + divide_up(n, lanes_) * lanes_, -kInfinity);
    FloatVec top = hn::Set(d, -kInfinity);
    for (int64_t i = 0; i < n; i += lanes_) top = hn::Max(top, hn::LoadU(d, row + i));
    const float highest = reduce_max(top);
    float& reference = reference_[h * tile_rows_ + r];
    float* sums = sums_ + (h * tile_rows_ + r) * lanes_;
    if (reference == -kInfinity) {
      reference = highest;
    } else if (highest > reference + kLogitHeadroom) {
      const float factor = std::exp(reference - highest);
      scale_row(h, r, factor, panel.index);
      for (int64_t i = 0; i < lanes_; i++) sums[i] *= factor;
      reference = highest;
    }
    if (reference == -kInfinity) {  // nothing visible so far
      std::fill(row, row + n, 0.0f);
      return;
    }
    FloatVec sum = hn::LoadU(d, sums);
    for (int64_t i = 0; i < n; i += lanes_) {
      const FloatVec x = hn::Sub(hn::LoadU(d, row + i), hn::Set(d, reference));
      const FloatVec w = exp2_vec(hn::Mul(x, hn::Set(d, kLog2e)));
      hn::StoreU(w, d, row + i);
      sum = hn::Add(sum, w);
    }
    hn::StoreU(sum, d, sums);
  }

  // Logits of the whole tile to weights, row by row.
  void entmax_rows() {
    float* in = reserve(scratch_.row_in, end_ + lanes_);
    float* out = reserve(scratch_.row_out, end_ + lanes_);
    for (int64_t h = 0; h < p_.heads; h++) {
      for (int64_t r = 0; r < tile_.rows; r++) {
        const int64_t n = causal_keys(mask_, tile_.t0 + r);
        gather_row(weights_, p_.heads, h, r, n, in);
        const double alpha = p_.alpha[h * p_.alpha_stride];
        const auto threshold = entmax::forward_row(in, n, alpha, out, scratch_.row);
        scatter_row(out, p_.heads, h, r, n, weights_);
        sums_[(h * tile_rows_ + r) * lanes_] = threshold.max == -kInfinity ? 0.0f : 1.0f;
      }
    }
  }

  const TalkingHeadsParams& p_;
  const PackedHeads& packed_;
  HeadsScratch& scratch_;
  SoftmaxParams mask_;
  int64_t lanes_, tile_rows_, head_stride_;
  bool keep_scores_;
  HeadsTile tile_{};
  int64_t end_ = 0;  // keys that any of the rows may see
  Mixing logits_{};
  float *q_, *scores_, *weights_, *reference_, *sums_, *bias_;
};

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_TALKING_HEADS_TILE_INL_H_
