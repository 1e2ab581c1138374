#include "tokenizers/added_tokens.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "hedgerow/error.h"
#include "tokenizers/unicode.h"

namespace hedgerow::tokenizers {

void AddedTokenMatcher::add(Pattern pattern) {
  const size_t index = patterns_.size();
  const size_t length = pattern.text.size();
  patterns_.push_back(std::move(pattern));
  if (length == 0) {
    if (!empty_) empty_ = index;
    return;
  }
  const char32_t first = patterns_[index].text[0];
  if (first < 128) ascii_first_.set(first);
  std::vector<size_t>& list = by_first_[first];
  const auto place = std::find_if(list.begin(), list.end(), [&](size_t other) {
    return patterns_[other].text.size() < length;
  });
  list.insert(place, index);
}

const AddedTokenMatcher::Pattern* AddedTokenMatcher::longest_at(std::u32string_view text,
                                                                size_t position) const {
  const char32_t first = text[position];
  if (first < 128 && !ascii_first_.test(first)) return nullptr;
  const auto found = by_first_.find(first);
  if (found == by_first_.end()) return nullptr;
  for (const size_t index : found->second)
    if (text.substr(position, patterns_[index].text.size()) == patterns_[index].text)
      return &patterns_[index];
  return nullptr;
}

void AddedTokenMatcher::split(const Piece& piece, std::vector<Piece>& out) const {
  if (patterns_.empty()) {
    out.push_back(piece);
    return;
  }
  const std::u32string_view text = piece.chars();
  const CodePointTable& table = CodePointTable::get();
  const auto emit = [&](size_t begin, size_t end, int32_t id) {
    if (begin < end)
      out.push_back({piece.text, piece.begin + static_cast<uint32_t>(begin),
                     piece.begin + static_cast<uint32_t>(end), id});
  };
  size_t done = 0;  // text before this is in `out`
  size_t last_end = std::u32string_view::npos;
  size_t position = 0;
  while (position <= text.size()) {
    const Pattern* found = position < text.size() ? longest_at(text, position) : nullptr;
    if (found == nullptr && position != last_end) found = empty();
    if (found == nullptr) {
      ++position;
      continue;
    }
    size_t begin = position;
    size_t end = position + found->text.size();
    position = last_end = end;
    if (found->single_word && ((begin > 0 && table.is(text[begin - 1], kIsWord)) ||
                               (end < text.size() && table.is(text[end], kIsWord))))
      continue;
    if (found->lstrip) {
      while (begin > 0 && table.is(text[begin - 1], kIsWhitespace)) --begin;
      begin = std::max(begin, done);
    }
    if (found->rstrip)
      while (end < text.size() && table.is(text[end], kIsWhitespace)) ++end;
    emit(done, begin, -1);
    emit(begin, end, found->id);
    done = end;
  }
  emit(done, text.size(), -1);
}

AddedVocabulary::AddedVocabulary(const std::vector<formats::AddedToken>& tokens, const Model& model,
                                 const Normalizer* normalizer) {
  for (const formats::AddedToken& token : tokens) register_token(token, model);
  // Special ones first: of equal texts the first counts.
  std::stable_partition(tokens_.begin(), tokens_.end(),
                        [](const auto& token) { return token.special; });
  for (const formats::AddedToken& token : tokens_) {
    AddedTokenMatcher::Pattern pattern{decode_utf8(token.content), token.id, token.single_word,
                                       token.lstrip, token.rstrip};
    if (!token.normalized) {
      raw_.add(std::move(pattern));
      continue;
    }
    if (normalizer != nullptr) {
      NormalizedText text = NormalizedText::identity(pattern.text, 0);
      normalizer->normalize(text);
      pattern.text = std::move(text.chars);
    }
    normalized_.add(std::move(pattern));
  }
}

void AddedVocabulary::register_token(const formats::AddedToken& token, const Model& model) {
  if (token.content.empty() || ids_.count(token.content) != 0) return;
  int32_t id = 0;
  if (const auto known = model.token_to_id(token.content)) {
    id = *known;
  } else {
    const int64_t next = std::max(model.vocab_size(), int64_t{largest_id_} + 1);
    HEDGEROW_CHECK(next <= std::numeric_limits<int32_t>::max(),
                   "added_tokens: ids must fit 31 bits; got ", next);
    id = static_cast<int32_t>(next);
    ++num_new_tokens_;
  }
  largest_id_ = std::max(largest_id_, id);
  ids_[token.content] = id;
  contents_[id] = token.content;
  if (token.special) special_.insert(token.content);
  tokens_.push_back(token);
  tokens_.back().id = id;
}

PieceList AddedVocabulary::split(std::u32string_view original, const Normalizer* normalizer) const {
  PieceList list;
  if (original.empty()) return list;
  NormalizedText& whole = list.storage.emplace_back(NormalizedText::identity(original, 0));
  std::vector<Piece> raw;
  raw_.split({&whole, 0, static_cast<uint32_t>(original.size()), -1}, raw);
  const auto normalize = [&](NormalizedText& text) {
    if (normalizer != nullptr) normalizer->normalize(text);
    if (!text.chars.empty())
      normalized_.split({&text, 0, static_cast<uint32_t>(text.chars.size()), -1}, list.pieces);
  };
  if (raw.size() == 1 && raw[0].added_id < 0) {  // the common case needs no copy
    normalize(whole);
    return list;
  }
  for (const Piece& piece : raw) {
    if (piece.added_id >= 0) {
      list.pieces.push_back(piece);
    } else {
      normalize(
          list.storage.emplace_back(NormalizedText::identity(piece.chars(), piece.origin().begin)));
    }
  }
  return list;
}

std::optional<int32_t> AddedVocabulary::token_to_id(std::string_view token) const {
  const auto found = ids_.find(std::string(token));
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string_view> AddedVocabulary::id_to_token(int32_t id) const {
  const auto found = contents_.find(id);
  if (found == contents_.end()) return std::nullopt;
  return found->second;
}

bool AddedVocabulary::is_special(std::string_view token) const {
  return special_.count(std::string(token)) != 0;
}

}  // namespace hedgerow::tokenizers
