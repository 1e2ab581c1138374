// Backward of softmax attention: weights are recomputed from the saved log-sum-exp, key tiles
// outside and query tiles inside, five products per 64 x 64 tile while its weights and score
// gradients lie in L1:
//   P = exp(Q K^T - lse), dS = P (dO V^T - delta), dV += P^T dO, dK += dS^T Q, dQ += dS K
// with delta = rowsum(dO O) and the scale folded in Q.
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax/softmax_backward.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/softmax/softmax_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {
namespace {

// Keys per block: panels, rows, dK and dV of a block stay in L2 while all queries pass.
constexpr int64_t kKeyBlock = 256;

}  // namespace

void backward_keys(const SoftmaxParams& p, const SoftmaxGradients& g, const KeyRange& range,
                   BackwardScratch& scratch) {
  HeadBackward head(p, g, scratch);
  const int64_t n = range.end - range.begin;
  const int64_t ks = head.key_stride(), vs = head.value_stride();
  float* dk = reserve(scratch.dk, n * ks);
  float* dv = reserve(scratch.dv, n * vs);
  float* dq = reserve(scratch.dq, p.queries * ks);
  std::fill(dk, dk + n * ks, 0.0f);
  std::fill(dv, dv + n * vs, 0.0f);
  head.set_keys(range.b, range.g, range.begin, range.end);
  for (int64_t member = 0; member < group_size(p); member++) {
    const int64_t h = range.g * group_size(p) + member;
    head.set_queries(h, 0, p.queries);
    std::fill(dq, dq + p.queries * ks, 0.0f);
    for (int64_t block = range.begin; block < range.end; block += kKeyBlock) {
      const int64_t block_end = std::min(range.end, block + kKeyBlock);
      for (int64_t t = 0; t < p.queries; t += kQueryTile) {
        const int64_t rows = std::min(kQueryTile, p.queries - t);
        for (int64_t s = block; s < block_end; s += kKeyTile) {
          if (causal_keys(p, t + rows - 1) <= s) break;
          head.tile(t, rows, s, std::min(kKeyTile, block_end - s));
          head.accumulate(dq, dk, dv);
        }
      }
    }
    for (int64_t t = 0; t < p.queries; t++) {
      if (range.partial_dq != nullptr) {
        std::copy(dq + t * ks, dq + t * ks + p.width,
                  range.partial_dq + (member * p.queries + t) * p.width);
      } else {
        store_row(p.dtype, dq + t * ks, p.width, static_cast<float>(p.scale),
                  row_pointer(p.dtype, g.dq, range.b, h, t));
      }
    }
  }
  for (int64_t s = 0; s < n; s++) {
    store_row(p.dtype, dk + s * ks, p.width, 1.0f,
              row_pointer(p.dtype, g.dk, range.b, range.g, range.begin + s));
    store_row(p.dtype, dv + s * vs, p.value_width, 1.0f,
              row_pointer(p.dtype, g.dv, range.b, range.g, range.begin + s));
  }
}

void sum_dq(const SoftmaxParams& p, const MutTensor& dq, int64_t b, int64_t h, int64_t t0,
            int64_t rows, const float* parts, int64_t num_parts, int64_t part_stride) {
  std::vector<float> sum(p.width);
  for (int64_t r = 0; r < rows; r++) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (int64_t i = 0; i < num_parts; i++) {
      const float* part = parts + i * part_stride + r * p.width;
      for (int64_t d = 0; d < p.width; d++) sum[d] += part[d];
    }
    store_row(p.dtype, sum.data(), p.width, static_cast<float>(p.scale),
              row_pointer(p.dtype, dq, b, h, t0 + r));
  }
}

namespace {

// to[t][s] += dS of the tile, for masks of type T.
template <typename T>
void add_mask_gradient(const SoftmaxParams& p, const MaskGradient& m, const MaskSlab& slab,
                       const float* dscores, int64_t t0, int64_t rows, int64_t s0, int64_t n) {
  T* to = static_cast<T*>(m.data) + slab.b * m.batch_stride + slab.h * m.head_stride;
  for (int64_t r = 0; r < rows; r++) {
    T* row = to + (t0 + r) * m.query_stride + s0 * m.key_stride;
    for (int64_t i = 0; i < n; i++) row[i * m.key_stride] += dscores[r * kKeyTile + i];
  }
}

template <typename T>
void clear_mask_gradient(const SoftmaxParams& p, const MaskGradient& m, const MaskSlab& slab) {
  T* to = static_cast<T*>(m.data) + slab.b * m.batch_stride + slab.h * m.head_stride;
  for (int64_t t = slab.begin; t < slab.end; t++) {
    for (int64_t s = 0; s < p.keys; s++) to[t * m.query_stride + s * m.key_stride] = 0;
  }
}

}  // namespace

void backward_mask(const SoftmaxParams& p, const SoftmaxGradients& g, const MaskSlab& slab,
                   BackwardScratch& scratch) {
  const MaskGradient& m = g.dmask;
  const bool wide = p.mask.kind == MaskKind::kFloat64;
  wide ? clear_mask_gradient<double>(p, m, slab) : clear_mask_gradient<float>(p, m, slab);
  HeadBackward head(p, g, scratch);
  const int64_t b_end = m.batch_stride ? slab.b + 1 : p.batch;
  const int64_t h_end = m.head_stride ? slab.h + 1 : p.heads;
  for (int64_t b = slab.b; b < b_end; b++) {
    for (int64_t h = slab.h; h < h_end; h++) {
      head.set_keys(b, h / group_size(p), 0, p.keys);
      head.set_queries(h, slab.begin, slab.end);
      for (int64_t t = slab.begin; t < slab.end; t += kQueryTile) {
        const int64_t rows = std::min(kQueryTile, slab.end - t);
        for (int64_t s = 0; s < causal_keys(p, t + rows - 1); s += kKeyTile) {
          const int64_t n = std::min(kKeyTile, p.keys - s);
          head.tile(t, rows, s, n);
          wide ? add_mask_gradient<double>(p, m, slab, head.dscores(), t, rows, s, n)
               : add_mask_gradient<float>(p, m, slab, head.dscores(), t, rows, s, n);
        }
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hedgerow::kernels {
HWY_EXPORT(backward_keys);
HWY_EXPORT(backward_mask);
HWY_EXPORT(sum_dq);

void softmax_backward_keys(const SoftmaxParams& p, const SoftmaxGradients& g, const KeyRange& range,
                           BackwardScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(backward_keys)(p, g, range, scratch);
}

void softmax_backward_mask(const SoftmaxParams& p, const SoftmaxGradients& g, const MaskSlab& slab,
                           BackwardScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(backward_mask)(p, g, slab, scratch);
}

void softmax_sum_dq(const SoftmaxParams& p, const MutTensor& dq, int64_t b, int64_t h, int64_t t0,
                    int64_t rows, const float* parts, int64_t num_parts, int64_t part_stride) {
  HWY_DYNAMIC_DISPATCH(sum_dq)(p, dq, b, h, t0, rows, parts, num_parts, part_stride);
}

}  // namespace hedgerow::kernels
#endif  // HWY_ONCE
