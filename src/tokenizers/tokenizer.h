// Tokenizers: text to ids and back, as the model's tokenizer.json says.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/encoding.h"

namespace hedgerow::tokenizers {

struct EncodeOptions {
  bool add_special_tokens = true;
  // Off unless given, whatever the file says: pass tokenizer.truncation() to get the file's.
  std::optional<Truncation> truncation;
  std::optional<Padding> padding;
};

// Texts are UTF-8 (Error otherwise). All calls are const and safe from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual Encoding encode(std::string_view text, const EncodeOptions& options = {}) const = 0;
  virtual Encoding encode_pair(std::string_view first, std::string_view second,
                               const EncodeOptions& options = {}) const = 0;
  // Padding is to one length for all.
  std::vector<Encoding> encode_batch(std::span<const std::string> texts,
                                     const EncodeOptions& options = {}) const;

  // Throws Error on an id that is no token's.
  virtual std::string decode(std::span<const int32_t> ids,
                             bool skip_special_tokens = true) const = 0;

  virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;
  virtual std::optional<std::string> id_to_token(int32_t id) const = 0;
  virtual int64_t vocab_size() const = 0;  // with added tokens

  // Special tokens that encode adds to one sequence, or to a pair.
  virtual int64_t num_special_tokens(bool pair) const = 0;

  // The file's own settings.
  const std::optional<Truncation>& truncation() const { return truncation_; }
  const std::optional<Padding>& padding() const { return padding_; }

 protected:
  std::optional<Truncation> truncation_;
  std::optional<Padding> padding_;
};

// From the text of a tokenizer.json. Throws Error that names what it does not understand.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, const std::string& where);

// <folder>/tokenizer.json, or the path of such a file.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

}  // namespace hedgerow::tokenizers
