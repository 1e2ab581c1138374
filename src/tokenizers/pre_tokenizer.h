// Pre-tokenizers: cut a normalized text into the pieces that the model sees one by one.
#pragma once

#include <memory>
#include <string>

#include "formats/json.h"
#include "tokenizers/normalized_text.h"

namespace hedgerow::tokenizers {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Replaces every piece without added_id by its parts, in order; empty parts are dropped.
  virtual void split(PieceList& list) const = 0;
};

// From the "pre_tokenizer" value of a tokenizer.json; null gives nullptr. Throws Error that names
// an unknown kind and lists the known ones.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const formats::Json& part,
                                                 const std::string& where);

}  // namespace hedgerow::tokenizers
