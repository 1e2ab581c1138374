#include "report/json_rules.h"

namespace hedgerow::report {
namespace {

// What was found, short enough for one line.
std::string shown(const Json& value) {
  if (value.is_object()) return concat("an object with ", value.size(), " members");
  if (value.is_array()) return concat("a list of ", value.size());
  return formats::excerpt(value);
}

}  // namespace

const Json& member(const Json& object, std::string_view key) {
  static const Json null;
  const Json* found = formats::find_member(object, key);
  return found == nullptr ? null : *found;
}

void JsonRules::require(bool holds, const std::string& place, std::string_view rule,
                        const Json& got) const {
  HEDGEROW_CHECK(holds, "report: ", path_, ": `", place, "` ", rule, "; got ", shown(got));
}

const Json& JsonRules::object(const Json& value, const std::string& place) const {
  require(value.is_object(), place, "must be an object", value);
  return value;
}

const Json& JsonRules::array(const Json& value, const std::string& place) const {
  require(value.is_array(), place, "must be a list", value);
  return value;
}

void JsonRules::text(const Json& value, const std::string& place) const {
  require(value.is_string(), place, "must be a string", value);
}

void JsonRules::number_or_null(const Json& value, const std::string& place) const {
  require(value.is_number() || value.is_null(), place, "must be a number or null", value);
}

int64_t JsonRules::positive_integer(const Json& value, const std::string& place) const {
  const bool holds =
      value.is_number_integer() && value.get<double>() >= 1 && value.get<double>() <= 1e9;
  require(holds, place, "must be an integer from 1 to 1000000000", value);
  return value.get<int64_t>();
}

std::vector<int64_t> JsonRules::matrix(const Json& value, const std::string& place) const {
  std::vector<int64_t> heads;
  for (const Json& row : array(value, place)) {
    const std::string row_place = concat(place, "[", heads.size(), "]");
    array(row, row_place);
    for (size_t h = 0; h < row.size(); ++h) number_or_null(row[h], concat(row_place, "[", h, "]"));
    heads.push_back(static_cast<int64_t>(row.size()));
  }
  return heads;
}

void JsonRules::optional_text(const Json& object, const char* key, const std::string& place) const {
  const Json& value = member(object, key);
  if (!value.is_null()) text(value, place);
}

void JsonRules::optional_number(const Json& object, const char* key,
                                const std::string& place) const {
  number_or_null(member(object, key), place);
}

void JsonRules::optional_object(const Json& value, const char* key,
                                const std::string& place) const {
  const Json& found = member(value, key);
  if (!found.is_null()) object(found, place);
}

void JsonRules::command(const Json& value, const std::string& place) const {
  if (value.is_null() || value.is_string()) return;
  for (const Json& word : array(value, place)) text(word, place + "[]");
}

void JsonRules::model(const Json& value, const std::string& place) const {
  if (value.is_null()) return;
  object(value, place);
  for (const char* key : {"name", "architecture"})
    optional_text(value, key, concat(place, ".", key));
  for (const char* key : {"layers", "heads", "hidden"}) {
    const Json& size = member(value, key);
    if (!size.is_null()) positive_integer(size, concat(place, ".", key));
  }
}

}  // namespace hedgerow::report
