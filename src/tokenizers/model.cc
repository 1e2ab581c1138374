#include "tokenizers/model.h"

#include "tokenizers/registry.h"
#include "tokenizers/wordpiece.h"

namespace hedgerow::tokenizers {
namespace {

constexpr Kind<Model> kModels[] = {
    {"WordPiece", make_wordpiece},
};

}  // namespace

std::unique_ptr<Model> make_model(const formats::Json& part, const std::string& where) {
  // Files of 2020 do not name the kind; this key is WordPiece's alone.
  if (formats::find_member(part, "type") == nullptr &&
      formats::find_member(part, "max_input_chars_per_word") != nullptr)
    return make_wordpiece(formats::Config(part, where));
  return make_part(std::span<const Kind<Model>>(kModels), part, where, "model");
}

}  // namespace hedgerow::tokenizers
