// Keys, values and key terms of all heads into the order in which tiles of queries read them.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/talking_heads/pack.cc"
#include "base/parallel.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/softmax/softmax_tile-inl.h"
#include "kernels/talking_heads/talking_heads_internal.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {
namespace {

// The n rows from s0 on of head (b, g); rows up to kHeadsPanel are zeros.
void load_rows(DType dtype, const ConstTensor& x, int64_t b, int64_t g, int64_t s0, int64_t n,
               int64_t width, int64_t stride, float* HWY_RESTRICT rows) {
  for (int64_t r = 0; r < n; r++) {
    load_row(dtype, row_pointer(dtype, x, b, g, s0 + r), width, stride, 1.0f, rows + r * stride);
  }
  std::fill(rows + n * stride, rows + kHeadsPanel * stride, 0.0f);
}

// Calls bad(r) for every row that is not finite, and makes it 0 where `clean`.
template <class Bad>
void for_bad_rows(int64_t n, int64_t width, int64_t stride, bool clean, float* HWY_RESTRICT rows,
                  Bad bad) {
  for (int64_t r = 0; r < n; r++) {
    if (all_finite(rows + r * stride, width)) continue;
    bad(r);
    if (clean) std::fill_n(rows + r * stride, stride, 0.0f);
  }
}

// rows [kHeadsPanel][stride] to panels [kHeadsPanel / pw][width][pw].
void transpose_rows(const float* HWY_RESTRICT rows, int64_t stride, int64_t width,
                    float* HWY_RESTRICT panels) {
  const int64_t pw = panel_width();
  for (int64_t s = 0; s < kHeadsPanel; s += pw) {
    transpose(pw, width, rows + s * stride, stride, panels + s * width, pw);
  }
}

// m [S][terms] of one batch at keys s0 .. + n to [terms][kHeadsPanel].
template <class Bad>
void pack_terms(const float* m, int64_t terms, int64_t s0, int64_t n, bool clean,
                float* HWY_RESTRICT to, AlignedBuffer<float>& staging, Bad bad) {
  float* rows = reserve(staging, kHeadsPanel * terms);
  load_rows(DType::kFloat32, {m, 0, 0, terms}, 0, 0, s0, n, terms, terms, rows);
  for_bad_rows(n, terms, terms, clean, rows, bad);
  transpose(kHeadsPanel, terms, rows, terms, to, kHeadsPanel);
}

}  // namespace

void pack_heads_panel(const TalkingHeadsParams& p, bool backward, int64_t b, int64_t panel,
                      PackedHeads& to) {
  const int64_t s0 = panel * kHeadsPanel, n = std::min(kHeadsPanel, p.keys - s0);
  const int64_t at = b * num_panels(p) + panel;
  const int64_t logits = p.key_heads * p.heads, weights = p.heads * p.value_heads;
  AlignedBuffer<float> staging;
  for (int64_t g = 0; g < p.key_kv_heads; g++) {
    const int64_t head = at * p.key_kv_heads + g;
    float* rows = backward ? to.key_rows.data() + head * kHeadsPanel * to.key_stride
                           : reserve(staging, kHeadsPanel * to.key_stride);
    load_rows(p.dtype, p.k, b, g, s0, n, p.width, to.key_stride, rows);
    transpose_rows(rows, to.key_stride, p.width, to.keys.data() + head * kHeadsPanel * p.width);
    if (!backward) continue;
    for_bad_rows(n, p.width, to.key_stride, true, rows,
                 [&](int64_t r) { to.bad_keys[at].push_back(r); });
  }
  for (int64_t g = 0; g < p.value_kv_heads; g++) {
    const int64_t head = at * p.value_kv_heads + g;
    float* rows = backward ? reserve(staging, kHeadsPanel * to.value_stride)
                           : to.values.data() + head * kHeadsPanel * to.value_stride;
    load_rows(p.dtype, p.v, b, g, s0, n, p.value_width, to.value_stride, rows);
    for_bad_rows(n, p.value_width, to.value_stride, !backward, rows, [&](int64_t r) {
      to.bad_values[at].push_back({g, r});
    });
    if (!backward) continue;
    transpose_rows(rows, to.value_stride, p.value_width,
                   to.value_panels.data() + head * kHeadsPanel * p.value_width);
  }
  if (p.m_logits != nullptr) {
    const float* m = static_cast<const float*>(p.m_logits) + b * p.keys * logits;
    pack_terms(m, logits, s0, n, backward, to.m_logits.data() + at * logits * kHeadsPanel, staging,
               [](int64_t) {});
  }
  if (p.m_weights != nullptr) {
    const float* m = static_cast<const float*>(p.m_weights) + b * p.keys * weights;
    pack_terms(m, weights, s0, n, true, to.m_weights.data() + at * weights * kHeadsPanel, staging,
               [&](int64_t r) { to.bad_weights[at].push_back(r); });
  }
}

int64_t whole_vectors(int64_t width) { return round_up(width, float_lanes()); }

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hedgerow::kernels {
HWY_EXPORT(pack_heads_panel);
HWY_EXPORT(whole_vectors);

PackedHeads pack_heads(const TalkingHeadsParams& p, bool backward) {
  PackedHeads packed;
  const int64_t panels = p.batch * num_panels(p), keys = panels * kHeadsPanel;
  packed.key_stride = HWY_DYNAMIC_DISPATCH(whole_vectors)(p.width);
  packed.value_stride = HWY_DYNAMIC_DISPATCH(whole_vectors)(p.value_width);
  packed.keys.resize(keys * p.key_kv_heads * p.width);
  if (p.m_logits != nullptr) packed.m_logits.resize(keys * p.key_heads * p.heads);
  if (p.m_weights != nullptr) packed.m_weights.resize(keys * p.heads * p.value_heads);
  if (backward) {
    packed.key_rows.resize(keys * p.key_kv_heads * packed.key_stride);
    packed.value_panels.resize(keys * p.value_kv_heads * p.value_width);
  } else {
    packed.values.resize(keys * p.value_kv_heads * packed.value_stride);
  }
  packed.bad_keys.resize(panels);
  packed.bad_values.resize(panels);
  packed.bad_weights.resize(panels);
  parallel_for(panels, [&](int64_t task, int64_t) {
    HWY_DYNAMIC_DISPATCH(pack_heads_panel)
    (p, backward, task / num_panels(p), task % num_panels(p), packed);
  });
  return packed;
}

}  // namespace hedgerow::kernels
#endif  // HWY_ONCE
