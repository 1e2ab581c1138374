// Attention weights as small pictures for reports.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/encoder.h"

namespace hedgerow::analysis {

// One text's weights in all layers and heads: bytes round(255 sqrt(weight)),
// [layer][head][query][key], row-major. Texts longer than `max_size` are binned: a byte is the
// largest weight of a square of `bin` x `bin` pairs. With `keep_zeros` byte 0 means exactly 0: a
// weight that is not has at least byte 1.
struct AttentionMaps {
  int64_t size = 0;
  int64_t bin = 1;
  std::vector<uint8_t> bytes;
};

// Throws Error unless the input is one text without padding.
AttentionMaps attention_maps(models::Encoder& model, const models::EncoderInput& input,
                             int64_t max_size = 512, bool keep_zeros = false);

// Base64 (RFC 4648, section 4), with padding.
std::string base64(const std::vector<uint8_t>& bytes);

}  // namespace hedgerow::analysis
