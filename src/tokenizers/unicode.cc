#include "tokenizers/unicode.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "formats/json.h"
#include "hedgerow/error.h"
#include "tokenizers/unicode_tables.h"

namespace hedgerow::tokenizers {
namespace {

// Hangul syllables decompose by arithmetic (The Unicode Standard, section 3.12).
constexpr char32_t kHangulBase = 0xAC00, kHangulEnd = 0xD7A4;
constexpr char32_t kLeadBase = 0x1100, kVowelBase = 0x1161, kTrailBase = 0x11A7;
constexpr char32_t kNumVowels = 21, kNumTrails = 28;

bool is_hangul(char32_t c) { return c >= kHangulBase && c < kHangulEnd; }

}  // namespace

const CodePointTable& CodePointTable::get() {
  static const CodePointTable table;
  return table;
}

CodePointTable::CodePointTable() : classes_(kSize, 0) {
  const auto mark = [this](const RangeTable& table, uint16_t bit) {
    for (size_t i = 0; i < table.size; ++i)
      for (uint32_t c = table.ranges[i].first; c <= table.ranges[i].last; ++c) classes_[c] |= bit;
  };
  mark(kWhitespace, kIsWhitespace);
  mark(kCleanSpace, kIsCleanSpace);
  mark(kCleanDropped, kIsCleanDropped);
  mark(kChinese, kIsChinese);
  mark(kPunctuation, kIsPunctuation);
  mark(kNonspacingMark, kIsNonspacingMark);
  mark(kMark, kIsMark);
  mark(kWord, kIsWord);
  for (size_t i = 0; i < kNumLowercaseRuns; ++i) {
    const LowercaseRun& run = kLowercaseRuns[i];
    for (uint32_t c = run.first; c <= run.last; c += run.stride) classes_[c] |= kHasLowercase;
  }
  classes_[0x130] |= kHasLowercase;
  for (size_t i = 0; i < kNumCombiningRuns; ++i)
    for (uint32_t c = kCombiningRuns[i].first; c <= kCombiningRuns[i].last; ++c)
      classes_[c] |= kHasCombiningClass;
  read_decompositions();
  for (const char32_t c : decomposition_keys_) classes_[c] |= kHasDecomposition;
  for (char32_t c = kHangulBase; c < kHangulEnd; ++c) classes_[c] |= kHasDecomposition;
}

void CodePointTable::read_decompositions() {
  char32_t key = 0;
  const char* at = kDecompositions;
  while (*at != '\0') {
    char* next = nullptr;
    key += static_cast<char32_t>(std::strtoul(at, &next, 16));
    decomposition_keys_.push_back(key);
    decomposition_starts_.push_back(static_cast<uint32_t>(decomposition_text_.size()));
    while (*next == ' ')
      decomposition_text_.push_back(static_cast<char32_t>(std::strtoul(next, &next, 16)));
    at = next + 1;  // behind the semicolon
  }
  decomposition_starts_.push_back(static_cast<uint32_t>(decomposition_text_.size()));
}

char32_t CodePointTable::lowercase(char32_t c) const {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  if (!is(c, kHasLowercase)) return c;
  if (c == 0x130) return 'i';
  const LowercaseRun* end = kLowercaseRuns + kNumLowercaseRuns;
  const LowercaseRun* run =
      std::upper_bound(kLowercaseRuns, end, c,
                       [](char32_t value, const LowercaseRun& r) { return value < r.first; });
  // Runs of stride 2 may enclose others: walk back to the one that holds c.
  while (run != kLowercaseRuns) {
    --run;
    if (c >= run->first && c <= run->last && (c - run->first) % run->stride == 0)
      return c + static_cast<char32_t>(run->delta);
  }
  return c;
}

uint8_t CodePointTable::combining_class(char32_t c) const {
  if (!is(c, kHasCombiningClass)) return 0;
  const CombiningRun* end = kCombiningRuns + kNumCombiningRuns;
  const CombiningRun* run =
      std::upper_bound(kCombiningRuns, end, c,
                       [](char32_t value, const CombiningRun& r) { return value < r.first; });
  return (run - 1)->combining_class;
}

void CodePointTable::append_decomposition(char32_t c, std::u32string& out) const {
  if (is_hangul(c)) {
    const char32_t index = c - kHangulBase;
    out.push_back(kLeadBase + index / (kNumVowels * kNumTrails));
    out.push_back(kVowelBase + index % (kNumVowels * kNumTrails) / kNumTrails);
    if (index % kNumTrails != 0) out.push_back(kTrailBase + index % kNumTrails);
    return;
  }
  const auto found = std::lower_bound(decomposition_keys_.begin(), decomposition_keys_.end(), c);
  const auto i = static_cast<size_t>(found - decomposition_keys_.begin());
  out.append(decomposition_text_, decomposition_starts_[i],
             decomposition_starts_[i + 1] - decomposition_starts_[i]);
}

std::u32string decode_utf8(std::string_view text) {
  const size_t invalid = formats::find_invalid_utf8(text);
  HEDGEROW_CHECK(invalid == std::string_view::npos,
                 "tokenize: text must be UTF-8; got an invalid sequence at byte ", invalid);
  std::u32string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t k) {
      return static_cast<char32_t>(static_cast<unsigned char>(text[i + k]));
    };
    const char32_t lead = byte(0);
    if (lead < 0x80) {
      out.push_back(lead);
      i += 1;
    } else if (lead < 0xE0) {
      out.push_back((lead & 0x1F) << 6 | (byte(1) & 0x3F));
      i += 2;
    } else if (lead < 0xF0) {
      out.push_back((lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F));
      i += 3;
    } else {
      out.push_back((lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
                    (byte(3) & 0x3F));
      i += 4;
    }
  }
  return out;
}

void append_utf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
    return;
  }
  const auto tail = [&](int shift) {
    out.push_back(static_cast<char>(0x80 | ((c >> shift) & 0x3F)));
  };
  if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (c >> 6)));
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (c >> 12)));
    tail(6);
  } else {
    out.push_back(static_cast<char>(0xF0 | (c >> 18)));
    tail(12);
    tail(6);
  }
  tail(0);
}

std::string encode_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) append_utf8(c, out);
  return out;
}

}  // namespace hedgerow::tokenizers
