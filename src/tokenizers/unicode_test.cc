#include "tokenizers/unicode.h"

#include <gtest/gtest.h>

#include "hedgerow/error.h"
#include "tokenizers/normalizer.h"

namespace hedgerow::tokenizers {
namespace {

std::u32string decomposed(char32_t c) {
  std::u32string out;
  CodePointTable::get().append_decomposition(c, out);
  return out;
}

TEST(CodePointTable, Classes) {
  const CodePointTable& table = CodePointTable::get();
  EXPECT_TRUE(table.is(U' ', kIsWhitespace));
  EXPECT_TRUE(table.is(0x3000, kIsWhitespace));
  EXPECT_FALSE(table.is(0x200B, kIsWhitespace));
  EXPECT_TRUE(table.is(0x200B, kIsCleanDropped));
  EXPECT_TRUE(table.is(0xFFFD, kIsCleanDropped));
  EXPECT_TRUE(table.is(U'\t', kIsCleanSpace));
  EXPECT_FALSE(table.is(U'\t', kIsCleanDropped));
  EXPECT_TRUE(table.is(0x4E2D, kIsChinese));
  EXPECT_FALSE(table.is(0x2B820, kIsChinese));  // the gap in the package's list
  EXPECT_TRUE(table.is(U'$', kIsPunctuation));
  EXPECT_FALSE(table.is(0x20AC, kIsPunctuation));
  EXPECT_TRUE(table.is(0x301, kIsNonspacingMark));
  EXPECT_TRUE(table.is(U'_', kIsWord));
  EXPECT_EQ(table[0x110000], 0);
  EXPECT_EQ(table[0xFFFFFFFF], 0);
}

TEST(CodePointTable, Mappings) {
  const CodePointTable& table = CodePointTable::get();
  EXPECT_EQ(table.lowercase(U'A'), U'a');
  EXPECT_EQ(table.lowercase(U'a'), U'a');
  EXPECT_EQ(table.lowercase(0x178), char32_t{0xFF});
  EXPECT_EQ(table.lowercase(0x10400), char32_t{0x10428});
  EXPECT_EQ(table.lowercase(0x1E9E), char32_t{0xDF});
  EXPECT_EQ(decomposed(0xE9), U"e\u0301");
  EXPECT_EQ(decomposed(0x1E69), U"s\u0323\u0307");
  EXPECT_EQ(decomposed(0xAC00), U"\u1100\u1161");
  EXPECT_EQ(decomposed(0xD7A3), U"\u1112\u1175\u11C2");
  EXPECT_EQ(decomposed(0x2FA1D), U"\U0002A600");
  EXPECT_EQ(table.combining_class(0x301), 230);
  EXPECT_EQ(table.combining_class(0x323), 220);
  EXPECT_EQ(table.combining_class(U'a'), 0);
}

TEST(CodePointTable, EveryLowercaseAndDecompositionIsThere) {
  const CodePointTable& table = CodePointTable::get();
  int lower = 0;
  int parts = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (table.is(c, kHasLowercase)) {
      ++lower;
      EXPECT_NE(table.lowercase(c), c) << static_cast<uint32_t>(c);
    }
    if (table.is(c, kHasDecomposition)) {
      ++parts;
      EXPECT_FALSE(decomposed(c).empty()) << static_cast<uint32_t>(c);
    }
    EXPECT_EQ(table.combining_class(c) > 0, table.is(c, kHasCombiningClass));
  }
  EXPECT_EQ(lower, 1488);   // counts of the package, see tools/make_unicode_tables.py
  EXPECT_EQ(parts, 13232);  // 11172 of them Hangul
}

TEST(Utf8, RoundTrip) {
  const std::string text = "a\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80";
  EXPECT_EQ(decode_utf8(text), U"a\u00e9\u4e2d\U0001F600");
  EXPECT_EQ(encode_utf8(decode_utf8(text)), text);
  EXPECT_THROW(decode_utf8("\xff"), Error);
}

// Each settings object as tokenizer.json has it, and what it makes of a text.
TEST(Normalizer, Kinds) {
  const auto normalized = [](const std::string& settings, const std::string& text) {
    return make_normalizer(formats::parse_json(settings, "x"), "x")->normalize_text(text);
  };
  EXPECT_EQ(normalized(R"({"type":"Lowercase"})", "\xC4\xB0X"), "i\xCC\x87x");
  EXPECT_EQ(normalized(R"({"type":"NFD"})", "\xC3\xA9"), "e\xCC\x81");
  // Marks are put in order: U+0301 (230) goes behind U+0323 (220).
  EXPECT_EQ(normalized(R"({"type":"NFD"})", "a\xCC\x81\xCC\xA3"), "a\xCC\xA3\xCC\x81");
  EXPECT_EQ(normalized(R"({"type":"StripAccents"})", "a\xCC\x81"), "a");
  EXPECT_EQ(
      normalized(
          R"({"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"StripAccents"},{"type":"Lowercase"}]})",
          "\xC3\x89"),
      "e");
  EXPECT_EQ(normalized(R"({"type":"BertNormalizer"})", "N\xC3\xA4\xE4\xB8\xAD\t"),
            "na \xE4\xB8\xAD  ");
  EXPECT_EQ(normalized(R"({"type":"BertNormalizer","strip_accents":false})", "\xC3\x84"),
            "\xC3\xA4");
  EXPECT_EQ(normalized(R"({"type":"BertNormalizer","lowercase":false})", "\xC3\x84"), "\xC3\x84");
  EXPECT_EQ(
      normalized(R"({"type":"BertNormalizer","clean_text":false,"handle_chinese_chars":false})",
                 "A\xE4\xB8\xAD\t"),
      "a\xE4\xB8\xAD\t");
  EXPECT_EQ(make_normalizer(nullptr, "x"), nullptr);
}

TEST(NormalizedText, OriginsFollowTheText) {
  // e-acute grows in NFD, U+200B goes, the Chinese character gets spaces that share its origin.
  NormalizedText text = NormalizedText::identity(U"\u200b\u00e9\u4e2d", 5);
  make_normalizer(formats::parse_json(R"({"type":"BertNormalizer","strip_accents":false})", "x"),
                  "x")
      ->normalize(text);
  EXPECT_EQ(text.chars, U"\u00e9 \u4e2d ");
  EXPECT_EQ(text.origins, (std::vector<Span>{{6, 7}, {7, 8}, {7, 8}, {7, 8}}));
  make_normalizer(formats::parse_json(R"({"type":"NFD"})", "x"), "x")->normalize(text);
  EXPECT_EQ(text.origins, (std::vector<Span>{{6, 7}, {6, 7}, {7, 8}, {7, 8}, {7, 8}}));
  EXPECT_EQ(text.origin_of(1, 3), (Span{6, 8}));
}

}  // namespace
}  // namespace hedgerow::tokenizers
