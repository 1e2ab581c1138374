// Text on its way through a tokenizer: code points, and where in the original text each came from.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace hedgerow::tokenizers {

// Code points [begin, end) of the original text.
struct Span {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const Span&) const = default;
};

// chars and origins have one length. The text covers the original from code point `start` on.
struct NormalizedText {
  std::u32string chars;
  std::vector<Span> origins;
  uint32_t start = 0;

  // The code points of `original` from `start` on, unchanged.
  static NormalizedText identity(std::u32string_view original, uint32_t start);

  // The part of the original that code points [begin, end) of this text stand for.
  Span origin_of(uint32_t begin, uint32_t end) const;

  // Replaces the text by `chars`, where changes[i] says how: 0, the i-th new code point takes the
  // place of the next old one; > 0, it is inserted and shares the origin of the old one before.
  void replace(std::u32string chars, const std::vector<uint8_t>& changes);
};

// A stretch of a NormalizedText; `added_id` >= 0: an added token was found there, which no later
// step may cut.
struct Piece {
  const NormalizedText* text = nullptr;
  uint32_t begin = 0;
  uint32_t end = 0;
  int32_t added_id = -1;

  std::u32string_view chars() const {
    return std::u32string_view(text->chars).substr(begin, end - begin);
  }
  Span origin() const { return text->origin_of(begin, end); }
};

// The pieces of a text, in order. `storage` keeps the texts that pieces point into: a step that
// changes code points (byte-level, metaspace) appends a text of its own.
struct PieceList {
  std::deque<NormalizedText> storage;
  std::vector<Piece> pieces;
};

}  // namespace hedgerow::tokenizers
