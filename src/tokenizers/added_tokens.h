// Added tokens: strings that become one token wherever they stand, before or after normalization.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "formats/tokenizer_json.h"
#include "tokenizers/model.h"
#include "tokenizers/normalized_text.h"
#include "tokenizers/normalizer.h"

namespace hedgerow::tokenizers {

// Finds the leftmost and there the longest of a set of strings.
class AddedTokenMatcher {
 public:
  struct Pattern {
    std::u32string text;
    int32_t id = 0;
    bool single_word = false;
    bool lstrip = false;
    bool rstrip = false;
  };
  // Of equal texts the first pattern counts.
  void add(Pattern pattern);

  // Replaces the piece by what it is made of: added tokens (with their id) and the text between.
  void split(const Piece& piece, std::vector<Piece>& out) const;

 private:
  const Pattern* longest_at(std::u32string_view text, size_t position) const;
  const Pattern* empty() const { return empty_ ? &patterns_[*empty_] : nullptr; }

  std::vector<Pattern> patterns_;
  // First code point -> patterns, longest first.
  std::unordered_map<char32_t, std::vector<size_t>> by_first_;
  std::bitset<128> ascii_first_;  // most text is refused by this alone
  std::optional<size_t> empty_;   // a pattern that normalization left nothing of
};

class AddedVocabulary {
 public:
  // Ids follow PyPI `tokenizers`: a token that the model knows keeps the model's id, others are
  // numbered behind the vocabulary in the file's order; a repeated content counts once.
  AddedVocabulary(const std::vector<formats::AddedToken>& tokens, const Model& model,
                  const Normalizer* normalizer);

  // Pieces of the original text: tokens found in it as it stands, and texts that are normalized and
  // searched for the tokens that want that. `normalizer` may be nullptr.
  PieceList split(std::u32string_view original, const Normalizer* normalizer) const;

  std::optional<int32_t> token_to_id(std::string_view token) const;
  std::optional<std::string_view> id_to_token(int32_t id) const;
  bool is_special(std::string_view token) const;

  // Tokens that the model itself does not have.
  int64_t num_new_tokens() const { return num_new_tokens_; }

 private:
  void register_token(const formats::AddedToken& token, const Model& model);

  std::vector<formats::AddedToken> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_map<int32_t, std::string> contents_;
  std::unordered_set<std::string> special_;
  AddedTokenMatcher raw_;
  AddedTokenMatcher normalized_;
  int64_t num_new_tokens_ = 0;
  int32_t largest_id_ = -1;
};

}  // namespace hedgerow::tokenizers
