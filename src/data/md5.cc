#include "data/md5.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "hedgerow/error.h"

namespace hedgerow::data {
namespace {

// K[i] = floor(2^32 |sin(i + 1)|), as RFC 1321 defines its table.
std::array<uint32_t, 64> sine_table() {
  std::array<uint32_t, 64> table;
  for (int i = 0; i < 64; ++i) {
    table[i] = static_cast<uint32_t>(std::floor(std::fabs(std::sin(i + 1.0)) * 4294967296.0));
  }
  return table;
}

constexpr int kRotate[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

void digest_block(const uint8_t* block, std::array<uint32_t, 4>& state) {
  static const std::array<uint32_t, 64> kSine = sine_table();
  uint32_t words[16];
  for (int i = 0; i < 16; ++i) {
    words[i] = block[4 * i] | uint32_t{block[4 * i + 1]} << 8 | uint32_t{block[4 * i + 2]} << 16 |
               uint32_t{block[4 * i + 3]} << 24;
  }
  auto [a, b, c, d] = state;
  for (int i = 0; i < 64; ++i) {
    uint32_t mix;
    int word;
    switch (i / 16) {
      case 0:
        mix = (b & c) | (~b & d);
        word = i;
        break;
      case 1:
        mix = (d & b) | (~d & c);
        word = (5 * i + 1) % 16;
        break;
      case 2:
        mix = b ^ c ^ d;
        word = (3 * i + 5) % 16;
        break;
      default:
        mix = c ^ (b | ~d);
        word = 7 * i % 16;
        break;
    }
    const uint32_t sum = a + mix + kSine[i] + words[word];
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, kRotate[i / 16][i % 4]);
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
}

}  // namespace

std::array<uint8_t, 16> md5(std::string_view bytes) {
  std::array<uint32_t, 4> state = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u};
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  const size_t whole = bytes.size() / 64 * 64;
  for (size_t at = 0; at < whole; at += 64) digest_block(data + at, state);

  // The rest, a 1 bit, zeros, and the length in bits: one block or two.
  uint8_t tail[128] = {};
  const size_t rest = bytes.size() - whole;
  if (rest > 0) std::memcpy(tail, data + whole, rest);
  tail[rest] = 0x80;
  const size_t tail_bytes = rest < 56 ? 64 : 128;
  const uint64_t num_bits = uint64_t{bytes.size()} * 8;
  for (int i = 0; i < 8; ++i) tail[tail_bytes - 8 + i] = static_cast<uint8_t>(num_bits >> (8 * i));
  for (size_t at = 0; at < tail_bytes; at += 64) digest_block(tail + at, state);

  std::array<uint8_t, 16> digest;
  for (int i = 0; i < 16; ++i) digest[i] = static_cast<uint8_t>(state[i / 4] >> (8 * (i % 4)));
  return digest;
}

std::string hex_md5(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const uint8_t byte : md5(bytes)) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

int64_t md5_modulo(std::string_view bytes, int64_t divisor) {
  HEDGEROW_CHECK(divisor >= 1 && divisor <= (int64_t{1} << 32),
                 "md5_modulo: divisor must be 1 .. 2^32; got ", divisor);
  uint64_t remainder = 0;
  for (const uint8_t byte : md5(bytes)) {
    remainder = (remainder * 256 + byte) % static_cast<uint64_t>(divisor);
  }
  return static_cast<int64_t>(remainder);
}

}  // namespace hedgerow::data
