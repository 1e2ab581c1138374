// Normalizers: the first step of a tokenizer, on code points. One class per kind of tokenizer.json.
#pragma once

#include <memory>
#include <string>

#include "formats/json.h"
#include "tokenizers/normalized_text.h"

namespace hedgerow::tokenizers {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void normalize(NormalizedText& text) const = 0;

  // UTF-8 in and out, without origins.
  std::string normalize_text(const std::string& text) const;
};

// From the "normalizer" value of a tokenizer.json; null gives nullptr. Throws Error that names an
// unknown kind and lists the known ones.
std::unique_ptr<Normalizer> make_normalizer(const formats::Json& part, const std::string& where);

}  // namespace hedgerow::tokenizers
