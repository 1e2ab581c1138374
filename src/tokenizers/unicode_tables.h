// The generated tables behind unicode.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace hedgerow::tokenizers {

// Both ends belong to the range.
struct CodePointRange {
  uint32_t first;
  uint32_t last;
};

struct RangeTable {
  const CodePointRange* ranges;
  size_t size;
};

extern const RangeTable kWhitespace;
extern const RangeTable kCleanSpace;
extern const RangeTable kCleanDropped;
extern const RangeTable kChinese;
extern const RangeTable kPunctuation;
extern const RangeTable kNonspacingMark;
extern const RangeTable kMark;
extern const RangeTable kWord;

// Code points first, first + stride, .., last have the lowercase c + delta.
struct LowercaseRun {
  uint32_t first;
  uint32_t last;
  uint32_t stride;
  int32_t delta;
};
extern const LowercaseRun* const kLowercaseRuns;
extern const size_t kNumLowercaseRuns;

struct CombiningRun {
  uint32_t first;
  uint32_t last;
  uint8_t combining_class;
};
extern const CombiningRun* const kCombiningRuns;
extern const size_t kNumCombiningRuns;

// "<key - key before> <code point> ...;" in hexadecimal, keys ascending.
extern const char kDecompositions[];

}  // namespace hedgerow::tokenizers
