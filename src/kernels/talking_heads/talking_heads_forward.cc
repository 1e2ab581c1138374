// One query tile of the forward: weights of all heads and keys, then, panel by panel, mixed weights
// and their products with the values.
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/talking_heads/talking_heads_forward.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/talking_heads/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {
namespace {

class TileForward {
 public:
  TileForward(const TalkingHeadsParams& p, const PackedHeads& packed, int64_t tile_rows,
              HeadsScratch& scratch)
      : p_(p),
        packed_(packed),
        scratch_(scratch),
        rows_(p, packed, tile_rows, /*keep_scores=*/false, scratch),
        lanes_(float_lanes()) {
    out_ = reserve(scratch.out, p.value_heads * tile_rows * packed.value_stride);
    mixed_ = reserve(scratch.mixed, p.value_heads * rows_.head_stride());
  }

  void run(const HeadsTile& tile, const MutTensor& out) {
    tile_ = tile;
    rows_.begin(tile);
    rows_.weigh();
    if (p_.weights_proj != nullptr) set_mixing();
    std::fill(out_, out_ + p_.value_heads * rows_.tile_rows() * packed_.value_stride, 0.0f);
    for (int64_t s = 0; s < rows_.end(); s += kHeadsPanel) {
      const Panel panel = rows_.panel_at(s);
      add_values(panel, mixed_weights(panel));
    }
    store(out);
  }

 private:
  // The weights' projection with what makes each row of W sum to 1; rows that see nothing have no
  // part in it, whatever their x terms are.
  void set_mixing() {
    mixing_ = rows_.mixing(p_.weights_proj, p_.x_weights, packed_.m_weights, p_.heads,
                           p_.value_heads, scratch_.weights_matrix);
    const int64_t n = p_.value_heads, size = p_.heads * n;
    const bool in_place = mixing_.key_terms != nullptr;  // these read W itself
    float* matrix = reserve(scratch_.weights_matrix, rows_.tile_rows() * size);
    for (int64_t r = 0; r < tile_.rows; r++) {
      const float* from = mixing_.matrix + r * mixing_.row_step;
      for (int64_t h = 0; h < p_.heads; h++) {
        float factor = rows_.row_factor(h, r);
        if (in_place && factor != 0.0f) {
          rows_.scale_row(h, r, factor);
          factor = 1.0f;
        }
        float* to = matrix + r * size + h * n;
        for (int64_t i = 0; i < n; i++) to[i] = factor == 0.0f ? 0.0f : factor * from[h * n + i];
      }
    }
    mixing_.matrix = matrix;
    mixing_.row_step = size;
  }

  // U of the panel, as dropped.
  float* mixed_weights(const Panel& panel) {
    float* mixed = rows_.weights_of(panel);
    if (p_.weights_proj != nullptr) {
      rows_.mix(mixing_, panel, mixed, mixed_);
      mixed = mixed_;
      for (int64_t key : packed_.bad_weights[rows_.packed_at(panel)]) mix_key(panel, key);
    }
    if (p_.dropout_p > 0) rows_.drop(panel, mixed);
    return mixed;
  }

  // U at one key whose terms are not finite, and reach only rows that have weight there.
  void mix_key(const Panel& panel, int64_t key) {
    if (key >= panel.n) return;
    const int64_t n = p_.value_heads, size = p_.heads * n;
    const float* m =
        static_cast<const float*>(p_.m_weights) + (tile_.b * p_.keys + panel.s0 + key) * size;
    for (int64_t r = 0; r < tile_.rows; r++) {
      const int64_t at = r * kHeadsPanel + key;
      for (int64_t h = 0; h < p_.heads; h++) {
        const float w = rows_.weights_of(panel)[h * rows_.head_stride() + at];
        for (int64_t c = 0; c < n && w != 0.0f; c++) {
          mixed_[c * rows_.head_stride() + at] += w * m[h * n + c];
        }
      }
    }
  }

  // out += U v over the panel, each row tile as far as its last row sees.
  void add_values(const Panel& panel, const float* mixed) {
    const int64_t stride = packed_.value_stride, heads = p_.value_kv_heads;
    for (int64_t c = 0; c < p_.value_heads; c++) {
      const int64_t g = c / (p_.value_heads / heads);
      const float* v =
          packed_.values.data() + (rows_.packed_at(panel) * heads + g) * kHeadsPanel * stride;
      const float* u = mixed + c * rows_.head_stride();
      float* out = out_ + c * rows_.tile_rows() * stride;
      for_vec_panels(stride / lanes_, [&](auto nv, int64_t j) HEDGEROW_FUNCTOR {
        for_row_tiles(tile_.rows, [&](auto mr, int64_t r) HEDGEROW_FUNCTOR {
          constexpr int kRows = decltype(mr)::value;
          gemm_tile<kRows, decltype(nv)::value>(
              rows_.visible(panel, r + kRows - 1), u + r * kHeadsPanel, kHeadsPanel, 1,
              v + j * lanes_, stride, out + r * stride + j * lanes_, stride, true);
        });
      });
    }
    for (const auto& [g, key] : packed_.bad_values[rows_.packed_at(panel)])
      add_value(panel, mixed, g, key);
  }

  // A value that is not finite, where it has weight.
  void add_value(const Panel& panel, const float* mixed, int64_t g, int64_t key) {
    if (key >= panel.n) return;
    const int64_t stride = packed_.value_stride, group = p_.value_heads / p_.value_kv_heads;
    float* v = reserve(scratch_.staging, stride);
    load_row(p_.dtype, row_pointer(p_.dtype, p_.v, tile_.b, g, panel.s0 + key), p_.value_width,
             stride, 1.0f, v);
    for (int64_t c = g * group; c < (g + 1) * group; c++) {
      for (int64_t r = 0; r < tile_.rows; r++) {
        const float u = mixed[c * rows_.head_stride() + r * kHeadsPanel + key];
        float* out = out_ + (c * rows_.tile_rows() + r) * stride;
        for (int64_t i = 0; u != 0.0f && i < p_.value_width; i++) out[i] += u * v[i];
      }
    }
  }

  void store(const MutTensor& out) const {
    for (int64_t c = 0; c < p_.value_heads; c++) {
      for (int64_t r = 0; r < tile_.rows; r++) {
        const float factor = p_.weights_proj == nullptr ? rows_.row_factor(c, r) : 1.0f;
        store_row(p_.dtype, out_ + (c * rows_.tile_rows() + r) * packed_.value_stride,
                  p_.value_width, factor, row_pointer(p_.dtype, out, tile_.b, c, tile_.t0 + r));
      }
    }
  }

  const TalkingHeadsParams& p_;
  const PackedHeads& packed_;
  HeadsScratch& scratch_;
  TileRows rows_;
  int64_t lanes_;
  HeadsTile tile_{};
  Mixing mixing_{};
  float *out_, *mixed_;
};

}  // namespace

void heads_forward_tile(const TalkingHeadsParams& p, const PackedHeads& packed, int64_t tile_rows,
                        const HeadsTile& tile, const MutTensor& out, HeadsScratch& scratch) {
  TileForward(p, packed, tile_rows, scratch).run(tile, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hedgerow::kernels {
HWY_EXPORT(heads_forward_tile);

void talking_heads_forward_tile(const TalkingHeadsParams& p, const PackedHeads& packed,
                                int64_t tile_rows, const HeadsTile& tile, const MutTensor& out,
                                HeadsScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(heads_forward_tile)(p, packed, tile_rows, tile, out, scratch);
}

}  // namespace hedgerow::kernels
#endif  // HWY_ONCE
