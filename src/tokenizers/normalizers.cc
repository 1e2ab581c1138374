#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "tokenizers/normalizer.h"
#include "tokenizers/registry.h"
#include "tokenizers/unicode.h"

namespace hedgerow::tokenizers {
namespace {

// Keeps what `keep` returns true for; origins stay with their code points.
template <typename Keep>
void filter(NormalizedText& text, Keep keep) {
  size_t out = 0;
  for (size_t i = 0; i < text.chars.size(); ++i) {
    if (!keep(text.chars[i])) continue;
    text.chars[out] = text.chars[i];
    text.origins[out] = text.origins[i];
    ++out;
  }
  text.chars.resize(out);
  text.origins.resize(out);
}

void clean(NormalizedText& text, const CodePointTable& table) {
  filter(text, [&](char32_t c) { return !table.is(c, kIsCleanDropped); });
  for (char32_t& c : text.chars)
    if (table.is(c, kIsCleanSpace)) c = U' ';
}

void space_chinese(NormalizedText& text, const CodePointTable& table) {
  const auto chinese = [&](char32_t c) { return table.is(c, kIsChinese); };
  if (std::none_of(text.chars.begin(), text.chars.end(), chinese)) return;
  std::u32string chars;
  std::vector<uint8_t> changes;
  for (const char32_t c : text.chars) {
    if (chinese(c)) {
      chars.append({U' ', c, U' '});
      changes.insert(changes.end(), {0, 1, 1});
    } else {
      chars.push_back(c);
      changes.push_back(0);
    }
  }
  text.replace(std::move(chars), changes);
}

void lowercase(NormalizedText& text, const CodePointTable& table) {
  constexpr char32_t kDottedI = 0x130;  // the one code point whose lower case is two
  if (text.chars.find(kDottedI) != std::u32string::npos) {
    std::u32string chars;
    std::vector<uint8_t> changes;
    for (const char32_t c : text.chars) {
      chars.push_back(c);
      changes.push_back(0);
      if (c == kDottedI) {
        chars.push_back(0x307);
        changes.push_back(1);
      }
    }
    text.replace(std::move(chars), changes);
  }
  for (char32_t& c : text.chars) c = table.lowercase(c);
}

// Sorts every stretch of code points with a combining class by it; equal classes keep their order.
void sort_marks(std::u32string& chars, std::vector<uint8_t>& changes, const CodePointTable& table) {
  for (size_t begin = 0; begin < chars.size();) {
    if (!table.is(chars[begin], kHasCombiningClass)) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < chars.size() && table.is(chars[end], kHasCombiningClass)) ++end;
    std::vector<size_t> order(end - begin);
    std::iota(order.begin(), order.end(), begin);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return table.combining_class(chars[a]) < table.combining_class(chars[b]);
    });
    const std::u32string old_chars = chars.substr(begin, end - begin);
    const std::vector<uint8_t> old_changes(changes.begin() + static_cast<std::ptrdiff_t>(begin),
                                           changes.begin() + static_cast<std::ptrdiff_t>(end));
    for (size_t i = 0; i < order.size(); ++i) {
      chars[begin + i] = old_chars[order[i] - begin];
      changes[begin + i] = old_changes[order[i] - begin];
    }
    begin = end;
  }
}

void decompose(NormalizedText& text, const CodePointTable& table) {
  const auto changed = [&](char32_t c) {
    return table.is(c, kHasDecomposition | kHasCombiningClass);
  };
  if (std::none_of(text.chars.begin(), text.chars.end(), changed)) return;
  std::u32string chars;
  std::vector<uint8_t> changes;
  for (const char32_t c : text.chars) {
    if (table.is(c, kHasDecomposition)) {
      table.append_decomposition(c, chars);
    } else {
      chars.push_back(c);
    }
    changes.push_back(0);
    changes.resize(chars.size(), 1);
  }
  sort_marks(chars, changes, table);
  text.replace(std::move(chars), changes);
}

class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(const formats::Config& settings)
      : clean_text_(settings.get_bool_or("clean_text", true)),
        handle_chinese_chars_(settings.get_bool_or("handle_chinese_chars", true)),
        lowercase_(settings.get_bool_or("lowercase", true)),
        // null: as lowercase says
        strip_accents_(settings.get_bool_or("strip_accents", lowercase_)) {}

  void normalize(NormalizedText& text) const override {
    const CodePointTable& table = CodePointTable::get();
    if (clean_text_) clean(text, table);
    if (handle_chinese_chars_) space_chinese(text, table);
    if (strip_accents_) {
      decompose(text, table);
      filter(text, [&](char32_t c) { return !table.is(c, kIsNonspacingMark); });
    }
    if (lowercase_) lowercase(text, table);
  }

 private:
  bool clean_text_;
  bool handle_chinese_chars_;
  bool lowercase_;
  bool strip_accents_;
};

class Lowercase : public Normalizer {
 public:
  void normalize(NormalizedText& text) const override { lowercase(text, CodePointTable::get()); }
};

class Nfd : public Normalizer {
 public:
  void normalize(NormalizedText& text) const override { decompose(text, CodePointTable::get()); }
};

class StripAccents : public Normalizer {
 public:
  void normalize(NormalizedText& text) const override {
    const CodePointTable& table = CodePointTable::get();
    filter(text, [&](char32_t c) { return !table.is(c, kIsMark); });
  }
};

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(const formats::Config& settings) {
    const formats::Json* parts = settings.find("normalizers");
    HEDGEROW_CHECK(parts != nullptr && parts->is_array(), settings.where(),
                   ": \"normalizers\" must be an array");
    for (const formats::Json& part : *parts) {
      HEDGEROW_CHECK(part.is_object(), settings.where(),
                     ": \"normalizers\" must hold objects; got ", formats::excerpt(part));
      parts_.push_back(make_normalizer(part, settings.where()));
    }
  }

  void normalize(NormalizedText& text) const override {
    for (const auto& part : parts_) part->normalize(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

template <typename Part>
std::unique_ptr<Normalizer> plain(const formats::Config&) {
  return std::make_unique<Part>();
}
template <typename Part>
std::unique_ptr<Normalizer> with_settings(const formats::Config& settings) {
  return std::make_unique<Part>(settings);
}

constexpr Kind<Normalizer> kNormalizers[] = {
    {"BertNormalizer", with_settings<BertNormalizer>},
    {"Lowercase", plain<Lowercase>},
    {"NFD", plain<Nfd>},
    {"StripAccents", plain<StripAccents>},
    {"Sequence", with_settings<NormalizerSequence>},
};

}  // namespace

std::string Normalizer::normalize_text(const std::string& text) const {
  NormalizedText normalized = NormalizedText::identity(decode_utf8(text), 0);
  normalize(normalized);
  return encode_utf8(normalized.chars);
}

std::unique_ptr<Normalizer> make_normalizer(const formats::Json& part, const std::string& where) {
  if (part.is_null()) return nullptr;
  return make_part(std::span<const Kind<Normalizer>>(kNormalizers), part, where, "normalizer");
}

}  // namespace hedgerow::tokenizers
