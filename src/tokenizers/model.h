// Models: what turns a piece of text into tokens of a vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/json.h"

namespace hedgerow::tokenizers {

struct ModelToken {
  int32_t id = 0;
  std::string_view value;  // lives as long as the model
  uint32_t begin = 0;      // code points of the piece
  uint32_t end = 0;
};

class Model {
 public:
  virtual ~Model() = default;

  // Appends the tokens of one piece.
  virtual void tokenize(std::u32string_view piece, std::vector<ModelToken>& out) const = 0;

  virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;
  virtual std::optional<std::string_view> id_to_token(int32_t id) const = 0;
  virtual int64_t vocab_size() const = 0;
};

// From the "model" value of a tokenizer.json. Throws Error that names an unknown kind and lists the
// known ones.
std::unique_ptr<Model> make_model(const formats::Json& part, const std::string& where);

}  // namespace hedgerow::tokenizers
