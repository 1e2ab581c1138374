// Lists of keys: which scores pass a threshold, and sums over listed rows of a tensor. Include
// after hwy/foreach_target.h.
#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_ENTMAX_ATTENTION_LISTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_ENTMAX_ATTENTION_LISTS_INL_H_
#undef HEDGEROW_KERNELS_ENTMAX_ATTENTION_LISTS_INL_H_
#else
#define HEDGEROW_KERNELS_ENTMAX_ATTENTION_LISTS_INL_H_
#endif

#include "kernels/entmax/attention_curves-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {

// Keys s of scores[0 .. n) above the threshold, ascending, to keys, which has room for 4 more;
// returns their number. n is a multiple of the lanes; bits and words have room for a bit per key.
HWY_INLINE int64_t select_keys(const float* HWY_RESTRICT scores, int64_t n, float threshold,
                               uint64_t* HWY_RESTRICT bits, uint64_t* HWY_RESTRICT words,
                               int32_t* HWY_RESTRICT keys) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  const FloatVec least = hn::Set(d, threshold);
  int64_t count = 0;
  if (lanes < 8) {  // fewer than a byte of bits per vector
    for (int64_t s = 0; s < n; s++) {
      keys[count] = static_cast<int32_t>(s);
      count += scores[s] > threshold;
    }
    return count;
  }
  const int64_t num_bits = divide_up(n, 64);
  bits[num_bits - 1] = 0;
  uint8_t* bytes = reinterpret_cast<uint8_t*>(bits);
  for (int64_t s = 0; s < n; s += lanes) {
    hn::StoreMaskBits(d, hn::Gt(hn::LoadU(d, scores + s), least), bytes + s / 8);
  }
  // which words are not 0, without branches; then four keys at a time, since few words have more
  int64_t num_words = 0;
  for (int64_t i = 0; i < num_bits; i++) {
    words[num_words] = static_cast<uint64_t>(i);
    num_words += bits[i] != 0;
  }
  for (int64_t i = 0; i < num_words; i++) {
    uint64_t word = bits[words[i]];
    const int32_t first = static_cast<int32_t>(words[i] * 64);
    int32_t* to = keys + count;
    count += __builtin_popcountll(word);
    do {
      HEDGEROW_UNROLL
      for (int k = 0; k < 4; k++) {
        to[k] = first + __builtin_ctzll(word | 1ull << 63);
        word &= word - 1;
      }
      to += 4;
    } while (word != 0);
  }
  return count;
}

// Drops the entries of a list without weight; returns how many are left.
HWY_INLINE int64_t drop_zeros(float* HWY_RESTRICT weights, int32_t* HWY_RESTRICT keys, int64_t n) {
  int64_t left = 0;
  for (int64_t i = 0; i < n; i++) {  // left <= i
    const float w = weights[i];
    weights[left] = w;
    keys[left] = keys[i];
    left += w > 0;
  }
  return left;
}

HWY_INLINE int64_t count_positive(const float* x, int64_t n) {
  const FloatTag d;
  int64_t count = 0;
  for (int64_t i = 0; i < n; i += float_lanes()) {
    count += static_cast<int64_t>(hn::CountTrue(d, hn::Gt(hn::LoadU(d, x + i), hn::Zero(d))));
  }
  return count;
}

// to[0 .. vecs vectors) += sum_i w[i] rows[keys[i]].
template <int NV>
HWY_INLINE void add_rows(const float* HWY_RESTRICT rows, int64_t stride,
                         const int32_t* HWY_RESTRICT keys, const float* HWY_RESTRICT w, int64_t n,
                         float* HWY_RESTRICT to) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  FloatVec a[NV], b[NV];  // two sums, for latency
  HEDGEROW_UNROLL
  for (int j = 0; j < NV; j++) {
    a[j] = hn::LoadU(d, to + j * lanes);
    b[j] = hn::Zero(d);
  }
  int64_t i = 0;
  for (; i + 2 <= n; i += 2) {
    const float* x = rows + keys[i] * stride;
    const float* y = rows + keys[i + 1] * stride;
    const FloatVec wx = hn::Set(d, w[i]), wy = hn::Set(d, w[i + 1]);
    HEDGEROW_UNROLL
    for (int j = 0; j < NV; j++) {
      a[j] = hn::MulAdd(wx, hn::LoadU(d, x + j * lanes), a[j]);
      b[j] = hn::MulAdd(wy, hn::LoadU(d, y + j * lanes), b[j]);
    }
  }
  if (i < n) {
    const float* x = rows + keys[i] * stride;
    HEDGEROW_UNROLL
    for (int j = 0; j < NV; j++) {
      a[j] = hn::MulAdd(hn::Set(d, w[i]), hn::LoadU(d, x + j * lanes), a[j]);
    }
  }
  HEDGEROW_UNROLL
  for (int j = 0; j < NV; j++) hn::StoreU(hn::Add(a[j], b[j]), d, to + j * lanes);
}

// to[i] = x . rows[keys[i]] over `width` (a multiple of the lanes) entries; to has room for 4 more.
HWY_INLINE void dot_rows(const float* HWY_RESTRICT rows, int64_t stride, int64_t width,
                         const int32_t* HWY_RESTRICT keys, int64_t n, const float* HWY_RESTRICT x,
                         float* HWY_RESTRICT to) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  for (int64_t i = 0; i < n; i += 4) {
    const float* row[4];
    for (int64_t k = 0; k < 4; k++) row[k] = rows + keys[std::min(i + k, n - 1)] * stride;
    FloatVec v0 = hn::Zero(d), v1 = v0, v2 = v0, v3 = v0;
    for (int64_t j = 0; j < width; j += lanes) {
      const FloatVec xj = hn::LoadU(d, x + j);
      v0 = hn::MulAdd(xj, hn::LoadU(d, row[0] + j), v0);
      v1 = hn::MulAdd(xj, hn::LoadU(d, row[1] + j), v1);
      v2 = hn::MulAdd(xj, hn::LoadU(d, row[2] + j), v2);
      v3 = hn::MulAdd(xj, hn::LoadU(d, row[3] + j), v3);
    }
    store_sums(v0, v1, v2, v3, to + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_ENTMAX_ATTENTION_LISTS_INL_H_
