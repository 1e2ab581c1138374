// Counter-based random bits: the value depends on the seed and the counter alone, so that a mask is
// the same for every tile size and thread and again in the backward. (SplitMix64 finaliser applied
// twice over seed and counter; Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", 2014.)
#pragma once

#include <cstdint>

namespace hedgerow {

inline uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Bits for position (b, h, t, s) of a dropout mask.
inline uint64_t dropout_row_key(uint64_t seed, int64_t b, int64_t h, int64_t t) {
  return mix64(mix64(mix64(seed ^ static_cast<uint64_t>(b)) ^ static_cast<uint64_t>(h)) ^
               static_cast<uint64_t>(t));
}
inline uint32_t dropout_bits(uint64_t row_key, int64_t s) {
  return static_cast<uint32_t>(mix64(row_key ^ static_cast<uint64_t>(s)) >> 32);
}

// Dropout keeps an entry when its bits reach this threshold; p in [0, 1).
inline uint32_t dropout_threshold(double p) { return static_cast<uint32_t>(p * 4294967296.0); }

}  // namespace hedgerow
