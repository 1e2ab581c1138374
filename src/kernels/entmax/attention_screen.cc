// The products that Highway does not offer on x86: compiled for AVX-512 BF16 by themselves, called
// where can_screen().
#include "kernels/entmax/attention_screen.h"

#include "base/cpu.h"
#include "hedgerow/error.h"
#include "hedgerow/kernels/simd.h"
#include "kernels/common/bfloat16.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HEDGEROW_SCREEN 1
#include <immintrin.h>
#else
#define HEDGEROW_SCREEN 0
#endif

namespace hedgerow::kernels {

void screen_pairs(const float* x, int64_t n, uint32_t* to) {
  for (int64_t i = 0; i < n / 2; i++) {
    to[i] = bfloat16_bits(x[2 * i]) | static_cast<uint32_t>(bfloat16_bits(x[2 * i + 1])) << 16;
  }
  if (n % 2 != 0) to[n / 2] = bfloat16_bits(x[n - 1]);
}

#if HEDGEROW_SCREEN

bool can_screen() {
  static const bool machine = cpu_multiplies_bfloat16();
  return machine && simd_target() == "avx3";
}

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace {

// One register tile: 4 MR accumulators of 32 registers.
template <int MR>
void screen_tile(int64_t pairs, const uint32_t* q, const uint32_t* panel, float* c, int64_t c_row,
                 float* highest) {
  __m512 sum[MR][4];
#pragma GCC unroll 8
  for (int r = 0; r < MR; r++) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) sum[r][j] = _mm512_setzero_ps();
  }
  for (int64_t k = 0; k < pairs; k++) {
    __m512bh b[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      b[j] = (__m512bh)_mm512_loadu_si512(panel + k * kScreenPanel + 16 * j);
    }
#pragma GCC unroll 8
    for (int r = 0; r < MR; r++) {
      const __m512bh a = (__m512bh)_mm512_set1_epi32(static_cast<int>(q[r * pairs + k]));
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) sum[r][j] = _mm512_dpbf16_ps(sum[r][j], a, b[j]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < MR; r++) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      float* top = highest + r * kScreenPanel + 16 * j;
      _mm512_storeu_ps(c + r * c_row + 16 * j, sum[r][j]);
      // all lanes; the form without a mask warns of its undefined operand in GCC 12
      const __mmask16 all = 0xffff;
      _mm512_storeu_ps(top, _mm512_maskz_max_ps(all, _mm512_loadu_ps(top), sum[r][j]));
    }
  }
}

}  // namespace

void screen_scores(int64_t rows, int64_t pairs, const uint32_t* q, const uint32_t* panel, float* c,
                   int64_t c_row, float* highest) {
  int64_t r = 0;
  for (; r + 6 <= rows; r += 6) {
    screen_tile<6>(pairs, q + r * pairs, panel, c + r * c_row, c_row, highest + r * kScreenPanel);
  }
  for (; r + 2 <= rows; r += 2) {
    screen_tile<2>(pairs, q + r * pairs, panel, c + r * c_row, c_row, highest + r * kScreenPanel);
  }
  for (; r < rows; r++) {
    screen_tile<1>(pairs, q + r * pairs, panel, c + r * c_row, c_row, highest + r * kScreenPanel);
  }
}
#pragma GCC pop_options

#else

bool can_screen() { return false; }

void screen_scores(int64_t, int64_t, const uint32_t*, const uint32_t*, float*, int64_t, float*) {
  throw Error("entmax_attention: this machine has no bfloat16 products to screen with");
}

#endif

}  // namespace hedgerow::kernels
