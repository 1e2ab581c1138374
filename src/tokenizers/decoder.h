// Decoders: from tokens back to text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "formats/json.h"

namespace hedgerow::tokenizers {

class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual std::string decode(const std::vector<std::string>& tokens) const = 0;
};

// From the "decoder" value of a tokenizer.json; null gives nullptr (tokens joined by spaces).
// Throws Error that names an unknown kind and lists the known ones.
std::unique_ptr<Decoder> make_decoder(const formats::Json& part, const std::string& where);

}  // namespace hedgerow::tokenizers
