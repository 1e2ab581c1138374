#include <utility>
#include <vector>

#include "tokenizers/pre_tokenizer.h"
#include "tokenizers/registry.h"
#include "tokenizers/unicode.h"

namespace hedgerow::tokenizers {
namespace {

// How a code point joins its neighbours: those of kSkip vanish, each of kAlone is a piece, and runs
// of one other class are a piece together.
enum JoinClass : int { kSkip, kAlone, kRun, kOtherRun };

template <typename Classify>
void split_by_class(PieceList& list, Classify classify) {
  std::vector<Piece> out;
  out.reserve(list.pieces.size() * 8);
  for (const Piece& piece : list.pieces) {
    if (piece.added_id >= 0) {
      out.push_back(piece);
      continue;
    }
    uint32_t begin = piece.begin;
    int running = kSkip;
    const auto flush = [&](uint32_t end) {
      if (running != kSkip && begin < end) out.push_back({piece.text, begin, end, -1});
      begin = end;
    };
    for (uint32_t i = piece.begin; i < piece.end; ++i) {
      const int kind = classify(piece.text->chars[i]);
      if (kind != running || kind == kAlone) flush(i);
      running = kind;
    }
    flush(piece.end);
  }
  list.pieces = std::move(out);
}

class BertPreTokenizer : public PreTokenizer {
 public:
  void split(PieceList& list) const override {
    const CodePointTable& table = CodePointTable::get();
    split_by_class(list, [&](char32_t c) {
      const uint16_t classes = table[c];
      return classes & kIsWhitespace ? kSkip : classes & kIsPunctuation ? kAlone : kRun;
    });
  }
};

class WhitespaceSplit : public PreTokenizer {
 public:
  void split(PieceList& list) const override {
    const CodePointTable& table = CodePointTable::get();
    split_by_class(list, [&](char32_t c) { return table.is(c, kIsWhitespace) ? kSkip : kRun; });
  }
};

// \w+|[^\w\s]+
class Whitespace : public PreTokenizer {
 public:
  void split(PieceList& list) const override {
    const CodePointTable& table = CodePointTable::get();
    split_by_class(list, [&](char32_t c) {
      const uint16_t classes = table[c];
      return classes & kIsWord ? kRun : classes & kIsWhitespace ? kSkip : kOtherRun;
    });
  }
};

class Punctuation : public PreTokenizer {
 public:
  explicit Punctuation(const formats::Config& settings) {
    const std::string behavior = settings.get_string_or("behavior", "Isolated");
    HEDGEROW_CHECK(behavior == "Isolated", settings.where(),
                   ": behavior must be \"Isolated\"; got ", formats::quote(behavior));
  }
  void split(PieceList& list) const override {
    const CodePointTable& table = CodePointTable::get();
    split_by_class(list, [&](char32_t c) { return table.is(c, kIsPunctuation) ? kAlone : kRun; });
  }
};

class PreTokenizerSequence : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(const formats::Config& settings) {
    const formats::Json* parts = settings.find("pretokenizers");
    HEDGEROW_CHECK(parts != nullptr && parts->is_array(), settings.where(),
                   ": \"pretokenizers\" must be an array");
    for (const formats::Json& part : *parts) {
      HEDGEROW_CHECK(part.is_object(), settings.where(),
                     ": \"pretokenizers\" must hold objects; got ", formats::excerpt(part));
      parts_.push_back(make_pre_tokenizer(part, settings.where()));
    }
  }
  void split(PieceList& list) const override {
    for (const auto& part : parts_) part->split(list);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

template <typename Part>
std::unique_ptr<PreTokenizer> plain(const formats::Config&) {
  return std::make_unique<Part>();
}
template <typename Part>
std::unique_ptr<PreTokenizer> with_settings(const formats::Config& settings) {
  return std::make_unique<Part>(settings);
}

constexpr Kind<PreTokenizer> kPreTokenizers[] = {
    {"BertPreTokenizer", plain<BertPreTokenizer>},     {"Whitespace", plain<Whitespace>},
    {"WhitespaceSplit", plain<WhitespaceSplit>},       {"Punctuation", with_settings<Punctuation>},
    {"Sequence", with_settings<PreTokenizerSequence>},
};

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const formats::Json& part,
                                                 const std::string& where) {
  if (part.is_null()) return nullptr;
  return make_part(std::span<const Kind<PreTokenizer>>(kPreTokenizers), part, where,
                   "pre_tokenizer");
}

}  // namespace hedgerow::tokenizers
