#include "formats/tokenizer_json.h"

#include <limits>

#include "formats/config.h"
#include "hedgerow/error.h"

namespace hedgerow::formats {
namespace {

constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxLength = std::numeric_limits<int64_t>::max();

AddedToken read_added_token(const Config& settings) {
  AddedToken token;
  token.content = settings.get_string("content");
  token.id = static_cast<int32_t>(settings.get_int_in("id", 0, kMaxId));
  token.special = settings.get_bool_or("special", false);
  token.single_word = settings.get_bool_or("single_word", false);
  token.lstrip = settings.get_bool_or("lstrip", false);
  token.rstrip = settings.get_bool_or("rstrip", false);
  token.normalized = settings.get_bool_or("normalized", !token.special);
  return token;
}

Side read_side(const Config& settings) {
  const std::string side = settings.get_string_or("direction", "Right");
  HEDGEROW_CHECK(side == "Left" || side == "Right", settings.where(),
                 ": direction must be \"Left\" or \"Right\"; got ", quote(side));
  return side == "Left" ? Side::kLeft : Side::kRight;
}

Truncation read_truncation(const Config& settings) {
  Truncation truncation;
  truncation.max_length = settings.get_int_in("max_length", 0, kMaxLength);
  truncation.stride = settings.has("stride") ? settings.get_int_in("stride", 0, kMaxLength) : 0;
  truncation.side = read_side(settings);
  const std::string strategy = settings.get_string_or("strategy", "LongestFirst");
  if (strategy == "OnlyFirst") {
    truncation.strategy = TruncationStrategy::kOnlyFirst;
  } else if (strategy == "OnlySecond") {
    truncation.strategy = TruncationStrategy::kOnlySecond;
  } else {
    HEDGEROW_CHECK(strategy == "LongestFirst", settings.where(),
                   ": strategy must be LongestFirst, OnlyFirst or OnlySecond; got ",
                   quote(strategy));
  }
  return truncation;
}

Padding read_padding(const Config& settings) {
  Padding padding;
  const Json* strategy = settings.find("strategy");
  if (strategy != nullptr && strategy->is_object()) {
    padding.fixed_length = settings.child("strategy").get_int_in("Fixed", 0, kMaxId);
  } else {
    const std::string name = settings.get_string_or("strategy", "BatchLongest");
    HEDGEROW_CHECK(name == "BatchLongest", settings.where(),
                   ": strategy must be BatchLongest or {\"Fixed\": n}; got ", quote(name));
  }
  if (settings.has("pad_to_multiple_of"))
    padding.multiple_of = settings.get_int_in("pad_to_multiple_of", 0, kMaxId);
  padding.side = read_side(settings);
  padding.pad_id =
      static_cast<int32_t>(settings.has("pad_id") ? settings.get_int_in("pad_id", 0, kMaxId) : 0);
  padding.pad_type_id = static_cast<int32_t>(
      settings.has("pad_type_id") ? settings.get_int_in("pad_type_id", 0, kMaxId) : 0);
  padding.pad_token = settings.get_string_or("pad_token", "[PAD]");
  return padding;
}

// null, or an object that says its type.
Json read_part(const Config& file, const char* key) {
  const Json* part = file.find(key);
  if (part == nullptr) return nullptr;
  file.child(key).get_string("type");
  return *part;
}

}  // namespace

TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& where) {
  const Config file(parse_json(text, where), where);
  TokenizerJson parsed;
  parsed.model = file.child("model").json();
  parsed.normalizer = read_part(file, "normalizer");
  parsed.pre_tokenizer = read_part(file, "pre_tokenizer");
  parsed.post_processor = read_part(file, "post_processor");
  parsed.decoder = read_part(file, "decoder");
  if (file.has("truncation")) parsed.truncation = read_truncation(file.child("truncation"));
  if (file.has("padding")) parsed.padding = read_padding(file.child("padding"));
  if (const Json* tokens = file.find("added_tokens")) {
    HEDGEROW_CHECK(tokens->is_array(), where, ": added_tokens must be an array; got ",
                   excerpt(*tokens));
    for (const Json& token : *tokens)
      parsed.added_tokens.push_back(
          read_added_token(Config(token, concat(where, ": added_tokens"))));
  }
  return parsed;
}

std::vector<std::pair<std::string, int32_t>> read_vocabulary(const Json& vocab,
                                                             const std::string& where) {
  HEDGEROW_CHECK(vocab.is_object(), where, ": vocab must be an object; got ", excerpt(vocab));
  std::vector<std::pair<std::string, int32_t>> entries;
  entries.reserve(vocab.size());
  for (const auto& [token, id] : vocab.get_ref<const Json::object_t&>()) {
    HEDGEROW_CHECK(id.is_number_unsigned() && id.get<uint64_t>() <= static_cast<uint64_t>(kMaxId),
                   where, ": ids of vocab must be whole numbers of 31 bits; got ", excerpt(id),
                   " for ", quote(token));
    entries.emplace_back(token, static_cast<int32_t>(id.get<uint64_t>()));
  }
  return entries;
}

}  // namespace hedgerow::formats
