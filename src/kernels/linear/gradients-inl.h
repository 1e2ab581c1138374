// Gradients on their way out: through the map and the projection, scaled output gradients, sums.
#include <cstdint>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_LINEAR_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_LINEAR_GRADIENTS_INL_H_
#undef HEDGEROW_KERNELS_LINEAR_GRADIENTS_INL_H_
#else
#define HEDGEROW_KERNELS_LINEAR_GRADIENTS_INL_H_
#endif

#include "kernels/linear/chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels::linear {
namespace HWY_NAMESPACE {

HWY_INLINE void add_block(int64_t n, const float* from, float* to, bool first) {
  for (int64_t i = 0; i < n; i++) to[i] = (first ? 0.0f : to[i]) + from[i];
}

// z += sum_r weight[r] f_r over n rows; weights at a distance.
HWY_INLINE void add_weighted_rows(int64_t n, int64_t width, const float* f, int64_t f_row,
                                  const float* weight, int64_t weight_row, float* z) {
  const FloatTag d;
  for (int64_t i = 0; i < width; i += float_lanes()) {
    FloatVec s = hn::LoadU(d, z + i);
    for (int64_t r = 0; r < n; r++) {
      s = hn::MulAdd(hn::Set(d, weight[r * weight_row]), hn::LoadU(d, f + r * f_row + i), s);
    }
    hn::StoreU(s, d, z + i);
  }
}

HWY_INLINE void* row_address(DType dtype, const MutTensor& t, int64_t b, int64_t h, int64_t r) {
  const int64_t at = b * t.batch_stride + h * t.head_stride + r * t.row_stride;
  return static_cast<char*>(t.data) + at * element_bytes(dtype);
}
HWY_INLINE const void* row_address(DType dtype, const ConstTensor& t, int64_t b, int64_t h,
                                   int64_t r) {
  const int64_t at = b * t.batch_stride + h * t.head_stride + r * t.row_stride;
  return static_cast<const char*>(t.data) + at * element_bytes(dtype);
}

// n rows of scratch, at distance `stride`, into rows [first, first + n) of a head.
HWY_INLINE void store_rows_of(DType dtype, const float* x, int64_t stride, int64_t width,
                              const MutTensor& out, int64_t b, int64_t h, int64_t first,
                              int64_t n) {
  for (int64_t r = 0; r < n; r++) {
    store_row(dtype, x + r * stride, width, 1.0f, row_address(dtype, out, b, h, first + r));
  }
}

// g [rows][stride]: row r = [go / den, -(go . o) / den, 0 ..]; 0 from row n on. copy: one row.
template <typename Call>
HWY_INLINE void load_scaled(const Call& p, int64_t b, int64_t h, int64_t first, int64_t n,
                            int64_t rows, const float* inv, int64_t stride, float* copy, float* g) {
  const FloatTag d;
  const int64_t Dv = p.value_dim, whole = Dv / float_lanes() * float_lanes();
  for (int64_t r = 0; r < rows; r++) {
    float* to = g + r * stride;
    if (r >= n || inv[r] == 0) {
      std::fill_n(to, stride, 0.0f);
      continue;
    }
    load_row(p.dtype, row_address(p.dtype, p.grad_out, b, h, first + r), Dv, stride, inv[r], to);
    const float* o = static_cast<const float*>(row_address(p.dtype, p.out, b, h, first + r));
    if (p.dtype != DType::kFloat32) {
      load_row(p.dtype, o, Dv, Dv, 1.0f, copy);
      o = copy;
    }
    FloatVec sum = hn::Zero(d);
    for (int64_t i = 0; i < whole; i += float_lanes()) {
      sum = hn::MulAdd(hn::LoadU(d, to + i), hn::LoadU(d, o + i), sum);
    }
    float dot = hn::GetLane(hn::SumOfLanes(d, sum));
    for (int64_t i = whole; i < Dv; i++) dot += to[i] * o[i];
    to[Dv] = -dot;
  }
}

// Through one head's map: dphi -> dy -> dx, with the weight's and the bias's gradients added up in
// `sums` ([D][width_pad], then [width_pad]).
class MapGradient {
 public:
  static int64_t sums(const FeatureShape& s) { return s.given ? 0 : (s.dim + 1) * s.width_pad; }
  static int64_t floats(const FeatureShape& s) {
    if (s.given) return 0;
    const int64_t dim_pad = round_up(s.dim, float_lanes());
    return s.width * dim_pad + kChunk * (s.width_pad + dim_pad) + 64;
  }

  MapGradient(DType dtype, const FeatureShape& s, Arena& arena)
      : dtype_(dtype), s_(s), dim_pad_(round_up(s.dim, float_lanes())) {
    if (s.given) return;
    transposed_ = arena.take(s.width * dim_pad_);
    dy_ = arena.take(kChunk * s.width_pad);
    dx_ = arena.take(kChunk * dim_pad_);
  }

  // Width of what through_map() gives, or of the features themselves.
  int64_t width() const { return s_.given ? s_.padded : s_.width_pad; }

  // weight [H,D,E]; sums as above.
  void pack(const void* weight, int64_t h, float* sums) {
    sums_ = sums;
    const int64_t bytes = element_bytes(dtype_);
    const char* from = static_cast<const char*>(weight) + h * s_.dim * s_.width * bytes;
    std::fill_n(transposed_, s_.width * dim_pad_, 0.0f);
    for (int64_t d = 0; d < s_.dim; d++) {
      load_row(dtype_, from + d * s_.width * bytes, s_.width, s_.width, 1.0f, dy_);
      for (int64_t e = 0; e < s_.width; e++) transposed_[e * dim_pad_ + d] = dy_[e];
    }
  }

  // dy [n][width_pad] of the features' gradient d [n][padded].
  float* through_map(int64_t n, const float* y, const float* f, const float* d) {
    for (int64_t r = 0; r < n; r++) {
      map_row_backward(s_, y + r * s_.width_pad, f + r * s_.padded, d + r * s_.padded,
                       dy_ + r * s_.width_pad);
    }
    return dy_;
  }

  // dx of dy, stored in rows [first, first + n) of grad_x; x [n][dim].
  void through_projection(const MutTensor& grad_x, int64_t b, int64_t h, int64_t first, int64_t n,
                          const float* dy, const float* x, int64_t x_row) {
    const int64_t lanes = float_lanes(), width = s_.width_pad;
    const bool in_place = dtype_ == DType::kFloat32 && s_.dim == dim_pad_;
    float* dx = in_place ? static_cast<float*>(row_address(dtype_, grad_x, b, h, first)) : dx_;
    const int64_t dx_row = in_place ? grad_x.row_stride : dim_pad_;
    gemm(n, dim_pad_ / lanes, s_.width, dy, width, 1, transposed_, dim_pad_, dx, dx_row, false);
    gemm(s_.dim, width / lanes, n, x, 1, x_row, dy, width, sums_, width, true);
    add_rows(n, width, dy, width, nullptr, sums_ + s_.dim * width);
    if (s_.map == FeatureMap::kPerformer) along_x(n, dy, x, x_row, dx, dx_row);
    if (!in_place) store_rows_of(dtype_, dx, dx_row, s_.dim, grad_x, b, h, first, n);
  }

  // Both, or with given features the gradient itself.
  void chunk(const MutTensor& grad_x, int64_t b, int64_t h, int64_t first, int64_t n,
             const float* y, const float* f, const float* d, const float* x, int64_t x_row) {
    if (s_.given) {
      store_rows_of(dtype_, d, s_.padded, s_.features, grad_x, b, h, first, n);
    } else {
      through_projection(grad_x, b, h, first, n, through_map(n, y, f, d), x, x_row);
    }
  }

 private:
  // dx -= x sum(dy): the map's -|x|^2 / 2.
  void along_x(int64_t n, const float* dy, const float* x, int64_t x_row, float* dx,
               int64_t dx_row) const {
    for (int64_t r = 0; r < n; r++) {
      float sum = 0;
      for (int64_t e = 0; e < s_.width; e++) sum += dy[r * s_.width_pad + e];
      for (int64_t d = 0; d < s_.dim; d++) dx[r * dx_row + d] -= sum * x[r * x_row + d];
    }
  }

  DType dtype_;
  const FeatureShape& s_;
  int64_t dim_pad_;
  float *transposed_ = nullptr, *dy_ = nullptr, *dx_ = nullptr, *sums_ = nullptr;
};

// Writes the sum of `slots` partial sums, `distance` apart, as the gradients of one head.
HWY_INLINE void store_weight_gradients(DType dtype, const FeatureShape& s, const float* sums,
                                       int64_t slots, int64_t distance, int64_t h,
                                       void* grad_weight, void* grad_bias, float* row) {
  const int64_t bytes = element_bytes(dtype);
  for (int64_t d = 0; d <= s.dim; d++) {
    const float* from = sums + d * s.width_pad;
    std::copy(from, from + s.width, row);
    for (int64_t i = 1; i < slots; i++) {
      for (int64_t e = 0; e < s.width; e++) row[e] += from[i * distance + e];
    }
    if (d < s.dim) {
      store_row(dtype, row, s.width, 1.0f,
                static_cast<char*>(grad_weight) + (h * s.dim + d) * s.width * bytes);
    } else if (grad_bias != nullptr) {
      store_row(dtype, row, s.width, 1.0f, static_cast<char*>(grad_bias) + h * s.width * bytes);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels::linear
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_LINEAR_GRADIENTS_INL_H_
