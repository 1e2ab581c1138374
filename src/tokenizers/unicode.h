// Classes and mappings of code points exactly as the PyPI package `tokenizers` has them (tables
// made by tools/make_unicode_tables.py), and UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hedgerow::tokenizers {

// Properties that a code point can have, as bits of CodePointTable::operator[].
enum CodePointClass : uint16_t {
  kIsWhitespace = 1 << 0,
  kIsCleanSpace = 1 << 1,    // clean_text makes it a space
  kIsCleanDropped = 1 << 2,  // clean_text drops it
  kIsChinese = 1 << 3,
  kIsPunctuation = 1 << 4,
  kIsNonspacingMark = 1 << 5,
  kIsMark = 1 << 6,
  kIsWord = 1 << 7,
  kHasLowercase = 1 << 8,
  kHasDecomposition = 1 << 9,  // Hangul syllables too
  kHasCombiningClass = 1 << 10,
};

// All code points' classes, built once.
class CodePointTable {
 public:
  static const CodePointTable& get();

  uint16_t operator[](char32_t c) const { return c < kSize ? classes_[c] : 0; }
  bool is(char32_t c, uint16_t any_of) const { return ((*this)[c] & any_of) != 0; }

  // One code point in lower case; U+0130 alone grows (to i, U+0307) and gives i here.
  char32_t lowercase(char32_t c) const;

  uint8_t combining_class(char32_t c) const;

  // Appends the full canonical decomposition of a code point that has one.
  void append_decomposition(char32_t c, std::u32string& out) const;

 private:
  CodePointTable();
  void read_decompositions();

  static constexpr size_t kSize = 0x110000;
  std::vector<uint16_t> classes_;
  std::vector<char32_t> decomposition_keys_;
  std::vector<uint32_t> decomposition_starts_;  // one more than keys
  std::u32string decomposition_text_;
};

// Throws Error naming the byte when the text is not UTF-8.
std::u32string decode_utf8(std::string_view text);

void append_utf8(char32_t c, std::string& out);
std::string encode_utf8(std::u32string_view text);

}  // namespace hedgerow::tokenizers
