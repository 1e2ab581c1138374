// bfloat16 as its 16 bits.
#pragma once

#include <bit>
#include <cstdint>

namespace hedgerow::kernels {

inline float bfloat16_value(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Rounded to nearest even; NaN stays NaN.
inline uint16_t bfloat16_bits(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
  const uint32_t nan = (u >> 16) | 0x40u;
  return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

}  // namespace hedgerow::kernels
