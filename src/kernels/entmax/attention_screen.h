// Scores by bfloat16 products at twice the speed of float32 ones, with a bound of their error: they
// say which few keys can be supported, and those get their float32 scores.
#pragma once

#include <cstdint>

#include "base/aligned_buffer.h"

namespace hedgerow::kernels {

// Keys per panel: four vectors of 512 bits.
inline constexpr int64_t kScreenPanel = 64;
// Fewer keys are not worth the packing.
inline constexpr int64_t kScreenKeys = 512;
// Share of candidates among the visible keys from which float32 scores of all keys are cheaper.
inline constexpr double kScreenShare = 0.12;

// One head's keys in bfloat16, packed once per worker.
struct ScreenScratch {
  AlignedBuffer<uint32_t> panels, q;
  AlignedBuffer<float> key, staging;
  AlignedBuffer<float> longest;  // [panel]: norm of the longest key up to the panel's end
  int64_t batch = -1, kv_head = -1, done = 0;
  // Of the task: whether it may screen, and whether it still screens this head. It stops where a
  // tile has too many candidates.
  bool allowed = false, on = false;
  int64_t head = -1;
};

// Whether this machine has the products (AVX-512 BF16) and the chosen target the vectors.
bool can_screen();

// Two bfloat16 values per entry, rounded to nearest even: to[(n + 1) / 2], 0 beyond x[n).
void screen_pairs(const float* x, int64_t n, uint32_t* to);

// Bound of |screened - exact| score for |q| |k| = `norms`: each factor is rounded by 2^-8 of
// itself, each of the width sums by 2^-24 of the terms' sizes.
inline float screen_error(float norms, int64_t width) {
  const float rounding = 1.01f / 128 + static_cast<float>(width) * 0x1p-22f;
  return norms * rounding + 1e-30f;  // subnormals count as 0
}

// c[rows][kScreenPanel] = q[rows][pairs] . panel[pairs][kScreenPanel]; highest[row][kScreenPanel]
// takes the maxima. Call only where can_screen().
void screen_scores(int64_t rows, int64_t pairs, const uint32_t* q, const uint32_t* panel, float* c,
                   int64_t c_row, float* highest);

}  // namespace hedgerow::kernels
