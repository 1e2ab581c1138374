// MD5 (RFC 1321): which texts are held out, and whether a file is the one of before.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace hedgerow::data {

std::array<uint8_t, 16> md5(std::string_view bytes);
std::string hex_md5(std::string_view bytes);  // 32 digits

// The digest, read as one big-endian number, modulo `divisor` (1 .. 2^32).
int64_t md5_modulo(std::string_view bytes, int64_t divisor);

}  // namespace hedgerow::data
