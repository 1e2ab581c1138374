// Kinds of pipeline parts by the name they have in tokenizer.json. A new kind is one line in the
// table of its step.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "formats/config.h"
#include "hedgerow/error.h"

namespace hedgerow::tokenizers {

template <typename Part>
struct Kind {
  std::string_view name;
  std::unique_ptr<Part> (*make)(const formats::Config& settings);
};

// Builds the part whose "type" is in the table. `step` ("normalizer", ..) leads the messages.
template <typename Part>
std::unique_ptr<Part> make_part(std::span<const Kind<Part>> kinds, const formats::Json& part,
                                const std::string& where, const char* step) {
  const formats::Config settings(
      part, formats::find_member(part, "type") == nullptr
                ? where
                : concat(where, " ", formats::excerpt(*formats::find_member(part, "type"))));
  const std::string name = settings.get_string("type");
  std::string known;
  for (const Kind<Part>& kind : kinds) {
    if (kind.name == name) return kind.make(settings);
    known += concat(known.empty() ? "" : ", ", kind.name);
  }
  throw Error(concat(where, ": this ", step, " is not supported; got ", formats::quote(name),
                     ", known are ", known));
}

}  // namespace hedgerow::tokenizers
