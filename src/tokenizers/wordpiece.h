// WordPiece: the longest entry that begins the word, then the longest continuation, and so on.
// (Schuster and Nakajima, "Japanese and Korean voice search", 2012; as used by BERT.)
#pragma once

#include <deque>
#include <unordered_map>

#include "formats/config.h"
#include "tokenizers/model.h"

namespace hedgerow::tokenizers {

class WordPiece : public Model {
 public:
  struct Settings {
    std::string unk_token = "[UNK]";
    std::string prefix = "##";  // of continuations
    int64_t max_input_chars_per_word = 100;
  };
  WordPiece(Settings settings, const std::vector<std::pair<std::string, int32_t>>& vocab);

  // A word that is too long or cannot be covered is one unk token. Throws Error when that token is
  // needed and not in the vocabulary.
  void tokenize(std::u32string_view piece, std::vector<ModelToken>& out) const override;

  std::optional<int32_t> token_to_id(std::string_view token) const override;
  std::optional<std::string_view> id_to_token(int32_t id) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(ids_.size()); }

 private:
  bool cover(std::u32string_view piece, std::vector<ModelToken>& out) const;

  Settings settings_;
  std::deque<std::string> entries_;  // addresses stay
  std::unordered_map<std::string_view, int32_t> ids_;
  std::unordered_map<int32_t, std::string_view> tokens_;
  size_t longest_entry_bytes_ = 0;
};

std::unique_ptr<Model> make_wordpiece(const formats::Config& settings);

}  // namespace hedgerow::tokenizers
