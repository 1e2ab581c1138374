#include "tokenizers/normalized_text.h"

#include <utility>

namespace hedgerow::tokenizers {

NormalizedText NormalizedText::identity(std::u32string_view original, uint32_t start) {
  NormalizedText text;
  text.chars.assign(original.begin(), original.end());
  text.start = start;
  text.origins.resize(original.size());
  for (uint32_t i = 0; i < original.size(); ++i) text.origins[i] = {start + i, start + i + 1};
  return text;
}

Span NormalizedText::origin_of(uint32_t begin, uint32_t end) const {
  if (begin >= end) return {start, start};
  return {origins[begin].begin, origins[end - 1].end};
}

void NormalizedText::replace(std::u32string new_chars, const std::vector<uint8_t>& changes) {
  std::vector<Span> new_origins(new_chars.size());
  size_t next = 0;
  for (size_t i = 0; i < new_chars.size(); ++i) {
    if (changes[i] == 0) ++next;
    new_origins[i] = next == 0 ? Span{start, start} : origins[next - 1];
  }
  chars = std::move(new_chars);
  origins = std::move(new_origins);
}

}  // namespace hedgerow::tokenizers
