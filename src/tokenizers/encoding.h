// What a tokenizer makes of a text, and cutting and filling it to a length.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/tokenizer_json.h"
#include "tokenizers/normalized_text.h"

namespace hedgerow::tokenizers {

using formats::Padding;
using formats::Side;
using formats::Truncation;
using formats::TruncationStrategy;

// One entry per token in every vector.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<std::string> tokens;
  std::vector<Span> offsets;  // code points of the token's own text; [0, 0] of added special tokens
  std::vector<int32_t> type_ids;
  std::vector<uint8_t> attention_mask;       // 0 at padding
  std::vector<uint8_t> special_tokens_mask;  // 1 at added special tokens and padding

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
  void push_back(int32_t id, std::string token, Span offset, int32_t type_id, bool special);
  void append(Encoding&& other);

  // Keeps `length` tokens; those on `side` go.
  void truncate(int64_t length, Side side);

  // Fills up to `length` tokens on padding.side.
  void pad(int64_t length, const Padding& padding);
};

// Cuts one sequence, or two together, to max_length tokens. Throws Error when only_first or
// only_second cannot reach it.
void truncate_sequences(Encoding& first, Encoding* second, const Truncation& truncation);

// Fills all to one length: padding.fixed_length, or the longest, rounded up to multiple_of.
void pad_batch(std::span<Encoding> batch, const Padding& padding);

}  // namespace hedgerow::tokenizers
