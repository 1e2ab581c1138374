#include "tokenizers/wordpiece.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "formats/tokenizer_json.h"
#include "hedgerow/error.h"
#include "tokenizers/unicode.h"

namespace hedgerow::tokenizers {

WordPiece::WordPiece(Settings settings, const std::vector<std::pair<std::string, int32_t>>& vocab)
    : settings_(std::move(settings)) {
  ids_.reserve(vocab.size());
  for (const auto& [token, id] : vocab) {
    const std::string_view entry = entries_.emplace_back(token);
    ids_[entry] = id;
    tokens_[id] = entry;
    longest_entry_bytes_ = std::max(longest_entry_bytes_, entry.size());
  }
}

bool WordPiece::cover(std::u32string_view piece, std::vector<ModelToken>& out) const {
  // The word in UTF-8 behind room for a prefix. A continuation is looked up in place: the prefix
  // overwrites the bytes before it, which are used up.
  const size_t room = settings_.prefix.size();
  std::string buffer = settings_.prefix;
  for (const char32_t c : piece) append_utf8(c, buffer);
  size_t start_byte = room;
  uint32_t start = 0;
  while (start_byte < buffer.size()) {
    size_t key_begin = start_byte;
    if (start > 0) {
      key_begin -= room;
      buffer.replace(key_begin, room, settings_.prefix);
    }
    size_t end_byte = std::min(buffer.size(), key_begin + longest_entry_bytes_);
    auto found = ids_.end();
    for (; end_byte > start_byte; --end_byte) {
      const bool boundary = end_byte == buffer.size() ||
                            (static_cast<unsigned char>(buffer[end_byte]) & 0xC0) != 0x80;
      if (!boundary) continue;
      found = ids_.find(std::string_view(buffer).substr(key_begin, end_byte - key_begin));
      if (found != ids_.end()) break;
    }
    if (found == ids_.end()) return false;
    uint32_t end = start;
    for (size_t i = start_byte; i < end_byte; ++i)
      end += (static_cast<unsigned char>(buffer[i]) & 0xC0) != 0x80 ? 1 : 0;
    out.push_back({found->second, found->first, start, end});
    start_byte = end_byte;
    start = end;
  }
  return true;
}

void WordPiece::tokenize(std::u32string_view piece, std::vector<ModelToken>& out) const {
  const size_t size_before = out.size();
  if (static_cast<int64_t>(piece.size()) <= settings_.max_input_chars_per_word && cover(piece, out))
    return;
  out.resize(size_before);
  const auto unk = ids_.find(settings_.unk_token);
  HEDGEROW_CHECK(unk != ids_.end(),
                 "tokenize: the vocabulary must hold the unknown token; it lacks ",
                 formats::quote(settings_.unk_token));
  out.push_back({unk->second, unk->first, 0, static_cast<uint32_t>(piece.size())});
}

std::optional<int32_t> WordPiece::token_to_id(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string_view> WordPiece::id_to_token(int32_t id) const {
  const auto found = tokens_.find(id);
  if (found == tokens_.end()) return std::nullopt;
  return found->second;
}

std::unique_ptr<Model> make_wordpiece(const formats::Config& settings) {
  WordPiece::Settings chosen;
  chosen.unk_token = settings.get_string_or("unk_token", chosen.unk_token);
  chosen.prefix = settings.get_string_or("continuing_subword_prefix", chosen.prefix);
  if (settings.has("max_input_chars_per_word"))
    chosen.max_input_chars_per_word =
        settings.get_int_in("max_input_chars_per_word", 0, std::numeric_limits<int64_t>::max());
  const formats::Json* vocab = settings.find("vocab");
  HEDGEROW_CHECK(vocab != nullptr, settings.where(), ": key \"vocab\" is needed; got none");
  return std::make_unique<WordPiece>(std::move(chosen),
                                     formats::read_vocabulary(*vocab, settings.where()));
}

}  // namespace hedgerow::tokenizers
