// Fast feature maps: tasks are heads for a range of the batch.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/linear_features.cc"
#include "base/parallel.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/linear/chunk-inl.h"
#include "kernels/linear/gradients-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels::linear {
namespace HWY_NAMESPACE {

// x, y and phi of one chunk.
struct FeatureRows {
  float *copy, *y, *f;
  const float* x = nullptr;
  int64_t x_row = 0;
  MapWeights weights;

  static int64_t floats(const FeatureShape& s) {
    return MapWeights::floats(s) + kChunk * (s.dim + s.width_pad + s.padded) + 64;
  }
  FeatureRows(const FeatureShape& s, Arena& arena) : weights(s, arena) {
    copy = arena.take(kChunk * s.dim);
    y = arena.take(kChunk * s.width_pad);
    f = arena.take(kChunk * s.padded);
  }
  template <typename Call>
  void load(const Call& p, const FeatureShape& s, int64_t b, int64_t h, int64_t first, int64_t n) {
    x = load_rows(p.dtype, p.x, b, h, first, n, n, s.dim, s.dim, nullptr, copy, &x_row);
    project(n, s, x, x_row, weights.w, weights.b, y);
    map_rows(n, s, y, x, x_row, nullptr, f);
  }
};

// Feature rows in the caller's layout, which has no padding between the halves.
HWY_INLINE void move_features(DType dtype, const FeatureShape& s, const float* f, void* out) {
  const int64_t bytes = element_bytes(dtype);
  for (int64_t i = 0; i < s.halves; i++) {
    store_row(dtype, f + i * s.half_pad, s.half, 1.0f,
              static_cast<char*>(out) + i * s.half * bytes);
  }
}

void run_features_forward(const FeaturesForward& p) {
  const FeatureShape s = feature_shape(false, p.map, p.dim, p.width);
  const int64_t chunks = (p.rows + kChunk - 1) / kChunk;
  const int64_t slots = std::max<int64_t>(1, std::min<int64_t>(p.batch, kBatchSlots));
  parallel_for(slots * p.heads, [&](int64_t task, int64_t) {
    const int64_t slot = task / p.heads, h = task % p.heads;
    Arena arena(FeatureRows::floats(s));
    FeatureRows rows(s, arena);
    rows.weights.pack(p.dtype, p.weight, p.bias, h, s, 1.0f);
    for (int64_t b = p.batch * slot / slots; b < p.batch * (slot + 1) / slots; b++) {
      for (int64_t c = 0; c < chunks; c++) {
        const int64_t first = c * kChunk, n = std::min(kChunk, p.rows - first);
        rows.load(p, s, b, h, first, n);
        for (int64_t r = 0; r < n; r++) {
          move_features(p.dtype, s, rows.f + r * s.padded,
                        row_address(p.dtype, p.phi, b, h, first + r));
        }
      }
    }
  });
}

void run_features_backward(const FeaturesBackward& p) {
  const FeatureShape s = feature_shape(false, p.map, p.dim, p.width);
  const int64_t sums = MapGradient::sums(s), bytes = element_bytes(p.dtype);
  const int64_t slots = std::max<int64_t>(1, std::min<int64_t>(p.batch, kBatchSlots));
  AlignedBuffer<float> partial(slots * p.heads * sums);
  parallel_for(slots * p.heads, [&](int64_t task, int64_t) {
    const int64_t slot = task / p.heads, h = task % p.heads;
    Arena arena(FeatureRows::floats(s) + MapGradient::floats(s) + kChunk * s.padded);
    FeatureRows rows(s, arena);
    MapGradient gradient(p.dtype, s, arena);
    float* d = arena.take(kChunk * s.padded);
    rows.weights.pack(p.dtype, p.weight, p.bias, h, s, 1.0f);
    float* own = partial.data() + task * sums;
    std::fill_n(own, sums, 0.0f);
    gradient.pack(p.weight, h, own);
    for (int64_t b = p.batch * slot / slots; b < p.batch * (slot + 1) / slots; b++) {
      for (int64_t first = 0; first < p.rows; first += kChunk) {
        const int64_t n = std::min(kChunk, p.rows - first);
        rows.load(p, s, b, h, first, n);
        for (int64_t r = 0; r < n; r++) {
          const char* g =
              static_cast<const char*>(row_address(p.dtype, p.grad_phi, b, h, first + r));
          for (int64_t i = 0; i < s.halves; i++) {
            load_row(p.dtype, g + i * s.half * bytes, s.half, s.half_pad, 1.0f,
                     d + r * s.padded + i * s.half_pad);
          }
        }
        gradient.chunk(p.grad_x, b, h, first, n, rows.y, rows.f, d, rows.x, rows.x_row);
      }
    }
  });
  parallel_for(p.heads, [&](int64_t h, int64_t) {
    AlignedBuffer<float> line(s.width_pad);
    store_weight_gradients(p.dtype, s, partial.data() + h * sums, slots, p.heads * sums, h,
                           p.grad_weight, p.grad_bias, line.data());
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels::linear
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hedgerow::kernels::linear {
HWY_EXPORT(run_features_forward);
HWY_EXPORT(run_features_backward);
void features_forward(const FeaturesForward& p) { HWY_DYNAMIC_DISPATCH(run_features_forward)(p); }
void features_backward(const FeaturesBackward& p) {
  HWY_DYNAMIC_DISPATCH(run_features_backward)(p);
}
}  // namespace hedgerow::kernels::linear
#endif  // HWY_ONCE
