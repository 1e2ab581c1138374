// Any bytes as tokenizer.json: an Error, or a tokenizer whose tokens lie in the text. A zero byte
// may end the file; what follows is the text, otherwise some words are.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "formats/json.h"
#include "hedgerow/error.h"
#include "tokenizers/tokenizer.h"

namespace {

constexpr std::string_view kText =
    "Hello, [CLS] un\xCC\x81"
    "affable <m> \xE4\xB8\xAD\xD0\x99 a b.";

void check(const hedgerow::tokenizers::Encoding& encoding, size_t text_bytes) {
  const size_t n = encoding.ids.size();
  if (encoding.tokens.size() != n || encoding.offsets.size() != n ||
      encoding.type_ids.size() != n || encoding.attention_mask.size() != n ||
      encoding.special_tokens_mask.size() != n)
    std::abort();
  for (const auto& span : encoding.offsets)
    if (span.begin > span.end || span.end > text_bytes) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string_view text = zero == std::string_view::npos ? kText : input.substr(zero + 1);
  try {
    const auto tokenizer = hedgerow::tokenizers::parse_tokenizer(input.substr(0, zero), "input");
    const auto encoding = tokenizer->encode(text);
    check(encoding, text.size());
    check(tokenizer->encode_pair(text, "a b", {.add_special_tokens = false}),
          std::max<size_t>(text.size(), 3));
    tokenizer->decode(encoding.ids);
  } catch (const hedgerow::Error&) {
  }
  return 0;
}
