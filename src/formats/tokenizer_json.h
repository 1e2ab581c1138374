// tokenizer.json as structs. What the parts of its pipeline mean is for tokenizers/ to say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/json.h"

namespace hedgerow::formats {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  bool single_word = false;  // only where no word character stands beside it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool normalized = false;   // looked for in the normalized text, itself normalized
};

enum class Side { kLeft, kRight };
enum class TruncationStrategy { kLongestFirst, kOnlyFirst, kOnlySecond };

struct Truncation {
  int64_t max_length = 0;  // with special tokens
  TruncationStrategy strategy = TruncationStrategy::kLongestFirst;
  Side side = Side::kRight;  // where tokens are dropped
  int64_t stride = 0;        // overlap of the parts that are cut off
};

struct Padding {
  std::optional<int64_t> fixed_length;  // none: the longest of the batch
  std::optional<int64_t> multiple_of;
  Side side = Side::kRight;
  int32_t pad_id = 0;
  int32_t pad_type_id = 0;
  std::string pad_token = "[PAD]";
};

struct TokenizerJson {
  std::vector<AddedToken> added_tokens;
  std::optional<Truncation> truncation;
  std::optional<Padding> padding;
  // null, or an object with a string "type".
  Json normalizer;
  Json pre_tokenizer;
  Json post_processor;
  Json decoder;
  // An object; old files have no "type" in it.
  Json model;
};

// Throws Error "<where>: ..." that names the key and what stands there.
TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& where);

// A vocabulary object {"token": id, ..} in the file's order; ids are whole numbers of 31 bits.
std::vector<std::pair<std::string, int32_t>> read_vocabulary(const Json& vocab,
                                                             const std::string& where);

}  // namespace hedgerow::formats
