// One query tile of the backward. The tile keeps J, W and dW of all heads and keys; two passes over
// its panels: gradients of values and weights, then, once each row's sum is known, of logits.
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/talking_heads/talking_heads_backward.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/talking_heads/gradients-inl.h"
#include "kernels/talking_heads/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {
namespace {

class TileBackward {
 public:
  TileBackward(const TalkingHeadsParams& p, const TalkingHeadsGradients& g,
               const PackedHeads& packed, int64_t tile_rows, HeadsSums& sums, HeadsScratch& scratch)
      : p_(p),
        g_(g),
        packed_(packed),
        sums_(sums),
        scratch_(scratch),
        rows_(p, packed, tile_rows, /*keep_scores=*/true, scratch),
        lanes_(float_lanes()),
        stride_(rows_.head_stride()) {
    grad_out_ = reserve(scratch.grad_out, p.value_heads * tile_rows * packed.value_stride);
    factors_ = reserve(scratch.factors, p.heads * tile_rows);
    dweights_ = reserve(scratch.dweights, num_panels(p) * p.heads * stride_);
    mixed_ = reserve(scratch.mixed, std::max(p.value_heads, p.key_heads) * stride_);
    dmixed_ = reserve(scratch.dmixed, p.value_heads * stride_);
    delta_ = reserve(scratch.delta, p.heads * tile_rows * lanes_);
    dq_ = reserve(scratch.dq, p.key_heads * tile_rows * packed.key_stride);
  }

  void run(const HeadsTile& tile) {
    tile_ = tile;
    rows_.begin(tile);
    load_grad_out();
    set_weights();
    std::fill(delta_, delta_ + p_.heads * rows_.tile_rows() * lanes_, 0.0f);
    std::fill(dq_, dq_ + p_.key_heads * rows_.tile_rows() * packed_.key_stride, 0.0f);
    weights_pass();
    if (p_.alpha != nullptr) entmax_rows();
    logits_pass();
    sums_.panels = std::max(sums_.panels, divide_up(rows_.end(), kHeadsPanel));
    for (int64_t a = 0; a < p_.key_heads; a++) {
      for (int64_t r = 0; r < tile_.rows; r++) {
        store_row(p_.dtype, dq_ + (a * rows_.tile_rows() + r) * packed_.key_stride, p_.width,
                  static_cast<float>(p_.scale),
                  row_pointer(p_.dtype, g_.dq, tile_.b, a, tile_.t0 + r));
      }
    }
  }

 private:
  void load_grad_out() {
    for (int64_t c = 0; c < p_.value_heads; c++) {
      for (int64_t r = 0; r < tile_.rows; r++) {
        load_row(p_.dtype, row_pointer(p_.dtype, g_.grad_out, tile_.b, c, tile_.t0 + r),
                 p_.value_width, packed_.value_stride, 1.0f, grad_out_row(c, r));
      }
    }
  }

  // W of the tile, up to the factors that make its rows sum to 1.
  void set_weights() {
    rows_.weigh();
    if (p_.weights_proj != nullptr) {
      mixing_ = rows_.mixing(p_.weights_proj, p_.x_weights, packed_.m_weights, p_.heads,
                             p_.value_heads, scratch_.weights_matrix);
    }
    for (int64_t r = 0; r < tile_.rows; r++) {
      bool any = false;
      for (int64_t h = 0; h < p_.heads; h++) {
        const float factor = rows_.row_factor(h, r);
        any |= factor != 0.0f;
        factors_[h * rows_.tile_rows() + r] = factor;
      }
      if (!any) clear_row(r);
    }
    clear_keys();
  }

  // Keys that are not finite have reached W where they are seen; in sums over pairs they must not
  // meet gradients of 0.
  void clear_keys() {
    for (int64_t s = 0; s < rows_.end(); s += kHeadsPanel) {
      const Panel panel = rows_.panel_at(s);
      for (int64_t key : packed_.bad_keys[rows_.packed_at(panel)]) {
        if (key >= panel.vecs * lanes_) continue;  // products are over whole vectors
        for (int64_t i = 0; i < p_.key_heads * tile_.rows; i++) {
          const int64_t a = i / tile_.rows, r = i % tile_.rows;
          rows_.scores_of(panel)[a * stride_ + r * kHeadsPanel + key] = 0.0f;
        }
      }
    }
  }

  // dU of values that are not finite, for rows without weight there.
  void clear_values(const Panel& panel, float* du) const {
    for (const auto& [g, key] : packed_.bad_values[rows_.packed_at(panel)]) {
      if (key >= panel.vecs * lanes_) continue;
      const int64_t group = p_.value_heads / p_.value_kv_heads;
      for (int64_t r = 0; r < tile_.rows; r++) {
        const int64_t at = r * kHeadsPanel + key;
        bool seen = false;
        for (int64_t h = 0; h < p_.heads; h++) {
          seen |= rows_.weights_of(panel)[h * stride_ + at] != 0.0f;
        }
        for (int64_t c = g * group; c < (g + 1) * group && !seen; c++) du[c * stride_ + at] = 0.0f;
      }
    }
  }

  // What a row that sees nothing holds stays out of all sums, finite or not.
  void clear_row(int64_t r) {
    for (int64_t c = 0; c < p_.value_heads; c++) {
      std::fill_n(grad_out_row(c, r), packed_.value_stride, 0.0f);
    }
    for (int64_t a = 0; a < p_.key_heads; a++) {
      std::fill_n(rows_.q_row(a, r), packed_.key_stride, 0.0f);
      for (int64_t s = 0; s < rows_.end(); s += kHeadsPanel) {
        float* scores = rows_.scores_of(rows_.panel_at(s));
        std::fill_n(scores + a * stride_ + r * kHeadsPanel, kHeadsPanel, 0.0f);
      }
    }
    rows_.clear_matrix(rows_.logits(), r, scratch_.logits_matrix);
    rows_.clear_matrix(mixing_, r, scratch_.weights_matrix);
  }

  // Rows of W at the panel times their factors.
  void normalise(const Panel& panel) {
    for (int64_t h = 0; h < p_.heads; h++) {
      for (int64_t r = 0; r < tile_.rows; r++) {
        const float factor = factors_[h * rows_.tile_rows() + r];
        if (factor == 1.0f) continue;
        float* HWY_RESTRICT row = rows_.weights_of(panel) + h * stride_ + r * kHeadsPanel;
        for (int64_t i = 0; i < kHeadsPanel; i++) row[i] *= factor;
      }
    }
  }

  // W and dW of every panel, dV, and the gradients of the weights' projection.
  void weights_pass() {
    const int64_t size = p_.heads * p_.value_heads;
    ProjectionGradient dproj(p_.heads, p_.value_heads, tile_.rows, row_terms(g_.dx_weights, size),
                             panel_terms(sums_.dm_weights), total(sums_.dweights_proj),
                             scratch_.gram);
    const bool mixes = p_.weights_proj != nullptr;
    for (int64_t s = 0; s < rows_.end(); s += kHeadsPanel) {
      const Panel panel = rows_.panel_at(s);
      normalise(panel);
      float* weights = rows_.weights_of(panel);
      float* du = mixes ? dmixed_ : dweights_of(panel);
      for (int64_t c = 0; c < p_.value_heads; c++) {
        const int64_t g = c / (p_.value_heads / p_.value_kv_heads);
        const int64_t at = rows_.packed_at(panel) * p_.value_kv_heads + g;
        rows_.multiply_panel(panel, p_.value_width, grad_out_row(c, 0), packed_.value_stride,
                             packed_.value_panels.data() + at * kHeadsPanel * p_.value_width,
                             du + c * stride_);
      }
      clear_values(panel, du);
      const float* mixed = weights;
      if (p_.dropout_p > 0) rows_.drop(panel, du);
      if (mixes) {
        rows_.mix(mixing_, panel, weights, mixed_);
        rows_.mix(mixing_, panel, du, dweights_of(panel), /*transposed=*/true);
        dproj.add(panel, stride_, weights, du);
        mixed = mixed_;
      }
      if (p_.dropout_p > 0) {
        if (!mixes) std::copy(weights, weights + p_.heads * stride_, mixed_);
        rows_.drop(panel, mixed_);
        mixed = mixed_;
      }
      if (p_.alpha == nullptr) add_deltas(panel);
      add_value_gradients(panel, mixed);
    }
    dproj.finish();
  }

  // Keys, and gradients of keys and values, are streamed from afar: head h + 1 of
  // [head][kHeadsPanel][stride] is on its way while head h is worked on.
  static void prefetch_head(const float* heads, int64_t h, int64_t count, int64_t stride) {
    if (h + 1 >= count) return;
    const float* next = heads + (h + 1) * kHeadsPanel * stride;
    for (int64_t i = 0; i < kHeadsPanel * stride; i += 16) hwy::Prefetch(next + i);
  }

  // to [key][stride] (+)= A^T B over the tile's rows, for one of the heads that share keys or
  // values, `group` each: the first to reach a panel sets it, whole.
  void add_to_keys(const Panel& panel, int64_t head, int64_t group, const float* a, const float* b,
                   int64_t stride, float* to) const {
    const bool adds = panel.index < sums_.panels || head % group != 0;
    gemm(panel.n, stride / lanes_, tile_.rows, a, 1, kHeadsPanel, b, stride, to, stride, adds);
    if (!adds) std::fill(to + panel.n * stride, to + kHeadsPanel * stride, 0.0f);
  }

  // dV += U^T dO over the panel.
  void add_value_gradients(const Panel& panel, const float* mixed) {
    const int64_t stride = packed_.value_stride;
    for (int64_t c = 0; c < p_.value_heads; c++) {
      const int64_t group = p_.value_heads / p_.value_kv_heads, g = c / group;
      float* heads = sums_.dv.data() + panel.index * p_.value_kv_heads * kHeadsPanel * stride;
      prefetch_head(heads, g, p_.value_kv_heads, stride);
      add_to_keys(panel, c, group, mixed + c * stride_, grad_out_row(c, 0), stride,
                  heads + g * kHeadsPanel * stride);
    }
  }

  // delta += the panel's sums of W dW, as lane sums.
  void add_deltas(const Panel& panel) {
    const FloatTag d;
    for (int64_t h = 0; h < p_.heads; h++) {
      for (int64_t r = 0; r < tile_.rows; r++) {
        const int64_t at = h * stride_ + r * kHeadsPanel;
        const float* w = rows_.weights_of(panel) + at;
        const float* dw = dweights_of(panel) + at;
        float* delta = delta_ + (h * rows_.tile_rows() + r) * lanes_;
        FloatVec sum = hn::LoadU(d, delta);
        for (int64_t i = 0; i < panel.vecs * lanes_; i += lanes_) {
          sum = hn::MulAdd(hn::LoadU(d, w + i), hn::LoadU(d, dw + i), sum);
        }
        hn::StoreU(sum, d, delta);
      }
    }
  }

  // dW to dL and alpha's gradient, row by row.
  void entmax_rows() {
    const SoftmaxParams mask = mask_view(p_);
    float* weights = reserve(scratch_.row_in, rows_.end() + lanes_);
    float* dweights = reserve(scratch_.row_in2, rows_.end() + lanes_);
    float* dlogits = reserve(scratch_.row_out, rows_.end() + lanes_);
    for (int64_t h = 0; h < p_.heads; h++) {
      for (int64_t r = 0; r < tile_.rows; r++) {
        const int64_t n = causal_keys(mask, tile_.t0 + r);
        rows_.gather_row(rows_.weights_of({}), p_.heads, h, r, n, weights);
        rows_.gather_row(dweights_, p_.heads, h, r, n, dweights);
        sums_.dalpha[h] += entmax::backward_row(weights, dweights, n, p_.alpha[h * p_.alpha_stride],
                                                dlogits, g_.dalpha != nullptr, scratch_.row);
        rows_.scatter_row(dlogits, p_.heads, h, r, n, dweights_);
      }
    }
  }

  // dL = W (dW - delta) of softmax, in the place of dW.
  void softmax_gradient(const Panel& panel) {
    const FloatTag d;
    for (int64_t h = 0; h < p_.heads; h++) {
      for (int64_t r = 0; r < tile_.rows; r++) {
        const int64_t at = h * stride_ + r * kHeadsPanel;
        const float* w = rows_.weights_of(panel) + at;
        float* dw = dweights_of(panel) + at;
        const FloatVec delta =
            hn::Set(d, reduce_sum(hn::LoadU(d, delta_ + (h * rows_.tile_rows() + r) * lanes_)));
        for (int64_t i = 0; i < panel.vecs * lanes_; i += lanes_) {
          const FloatVec x = hn::Sub(hn::LoadU(d, dw + i), delta);
          hn::StoreU(hn::Mul(hn::LoadU(d, w + i), x), d, dw + i);
        }
      }
    }
  }

  // dQ, dK, and the gradients of mask and logits' projection.
  void logits_pass() {
    const int64_t size = p_.key_heads * p_.heads;
    ProjectionGradient dproj(p_.key_heads, p_.heads, tile_.rows, row_terms(g_.dx_logits, size),
                             panel_terms(sums_.dm_logits), total(sums_.dlogits_proj),
                             scratch_.gram);
    for (int64_t s = 0; s < rows_.end(); s += kHeadsPanel) {
      const Panel panel = rows_.panel_at(s);
      if (p_.alpha == nullptr) softmax_gradient(panel);
      const float* dlogits = dweights_of(panel);
      if (sums_.mask.data != nullptr) add_mask_gradient(panel);
      const float* dscores = dlogits;
      if (p_.logits_proj != nullptr) {
        rows_.mix(rows_.logits(), panel, dlogits, mixed_, /*transposed=*/true);
        dproj.add(panel, stride_, rows_.scores_of(panel), dlogits);
        dscores = mixed_;
      }
      add_score_gradients(panel, dscores);
    }
    dproj.finish();
  }

  // dQ += dJ K, dK += dJ^T Q over the panel.
  void add_score_gradients(const Panel& panel, const float* dscores) {
    const int64_t stride = packed_.key_stride, heads = p_.key_kv_heads;
    const int64_t size = kHeadsPanel * stride;
    const float* keys = packed_.key_rows.data() + rows_.packed_at(panel) * heads * size;
    float* dk = sums_.dk.data() + panel.index * heads * size;
    for (int64_t a = 0; a < p_.key_heads; a++) {
      const int64_t group = p_.key_heads / heads, g = a / group;
      const float* ds = dscores + a * stride_;
      prefetch_head(keys, g, heads, stride);
      prefetch_head(dk, g, heads, stride);
      gemm(tile_.rows, stride / lanes_, panel.n, ds, kHeadsPanel, 1, keys + g * size, stride,
           dq_ + a * rows_.tile_rows() * stride, stride, true);
      add_to_keys(panel, a, group, ds, rows_.q(a), stride, dk + g * size);
    }
  }

  void add_mask_gradient(const Panel& panel) const {
    const MaskGradient& m = sums_.mask;
    for (int64_t h = 0; h < p_.heads; h++) {
      for (int64_t r = 0; r < tile_.rows; r++) {
        const float* from = dweights_of(panel) + h * stride_ + r * kHeadsPanel;
        const int64_t at = tile_.b * m.batch_stride + h * m.head_stride +
                           (tile_.t0 + r) * m.query_stride + panel.s0 * m.key_stride;
        const int64_t n = rows_.visible(panel, r);
        if (sums_.mask_dtype == DType::kFloat64) {
          for (int64_t i = 0; i < n; i++) {
            static_cast<double*>(m.data)[at + i * m.key_stride] += from[i];
          }
        } else {
          for (int64_t i = 0; i < n; i++) {
            static_cast<float*>(m.data)[at + i * m.key_stride] += from[i];
          }
        }
      }
    }
  }

  float* grad_out_row(int64_t c, int64_t r) const {
    return grad_out_ + (c * rows_.tile_rows() + r) * packed_.value_stride;
  }
  float* dweights_of(const Panel& panel) const {
    return dweights_ + panel.index * p_.heads * stride_;
  }

  // Where this tile's part of a projection's gradients goes.
  float* row_terms(void* x, int64_t size) const {
    if (x == nullptr) return nullptr;
    return static_cast<float*>(x) + (tile_.b * p_.queries + tile_.t0) * size;
  }
  static float* panel_terms(AlignedBuffer<float>& m) { return m.size() ? m.data() : nullptr; }
  static double* total(std::vector<double>& sum) { return sum.empty() ? nullptr : sum.data(); }

  const TalkingHeadsParams& p_;
  const TalkingHeadsGradients& g_;
  const PackedHeads& packed_;
  HeadsSums& sums_;
  HeadsScratch& scratch_;
  TileRows rows_;
  int64_t lanes_, stride_;
  HeadsTile tile_{};
  Mixing mixing_{};
  float *grad_out_, *factors_, *dweights_, *mixed_, *dmixed_, *delta_, *dq_;
};

}  // namespace

void heads_backward_tile(const TalkingHeadsParams& p, const TalkingHeadsGradients& g,
                         const PackedHeads& packed, int64_t tile_rows, const HeadsTile& tile,
                         HeadsSums& sums, HeadsScratch& scratch) {
  TileBackward(p, g, packed, tile_rows, sums, scratch).run(tile);
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hedgerow::kernels {
HWY_EXPORT(heads_backward_tile);

void talking_heads_backward_tile(const TalkingHeadsParams& p, const TalkingHeadsGradients& g,
                                 const PackedHeads& packed, int64_t tile_rows,
                                 const HeadsTile& tile, HeadsSums& sums, HeadsScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(heads_backward_tile)(p, g, packed, tile_rows, tile, sums, scratch);
}

}  // namespace hedgerow::kernels
#endif  // HWY_ONCE
