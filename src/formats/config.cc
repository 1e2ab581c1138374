#include "formats/config.h"

#include <cmath>
#include <filesystem>
#include <utility>

#include "hedgerow/error.h"

namespace hedgerow::formats {

Config::Config(Json document, std::string where)
    : document_(std::move(document)), where_(std::move(where)) {
  HEDGEROW_CHECK(document_.is_object(), where_, ": must be an object; got ", kind_name(document_));
}

Config Config::load(const std::string& path) { return Config(read_json_file(path), path); }

Config Config::load_folder(const std::string& folder) {
  return load((std::filesystem::path(folder) / "config.json").string());
}

const Json* Config::find(std::string_view key) const {
  const Json* value = find_member(document_, key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

const Json& Config::need(std::string_view key) const {
  const Json* value = find(key);
  HEDGEROW_CHECK(value != nullptr, where_, ": key ", quote(key), " is needed; got none");
  return *value;
}

void Config::wrong_type(std::string_view key, const char* wanted, const Json& got) const {
  throw Error(concat(where_, ": key ", quote(key), " must be ", wanted, "; got ", excerpt(got)));
}

int64_t Config::get_int(std::string_view key) const {
  const Json& value = need(key);
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    wrong_type(key, "a whole number of 63 bits", value);
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number == std::floor(number) && std::fabs(number) < 9e15)
      return static_cast<int64_t>(number);
  }
  wrong_type(key, "a whole number", value);
}

int64_t Config::get_int_in(std::string_view key, int64_t low, int64_t high) const {
  const int64_t value = get_int(key);
  HEDGEROW_CHECK(value >= low && value <= high, where_, ": key ", quote(key), " must be in [", low,
                 ", ", high, "]; got ", value);
  return value;
}

double Config::get_double(std::string_view key) const {
  const Json& value = need(key);
  if (!value.is_number()) wrong_type(key, "a number", value);
  return value.get<double>();
}

bool Config::get_bool(std::string_view key) const {
  const Json& value = need(key);
  if (!value.is_boolean()) wrong_type(key, "true or false", value);
  return value.get<bool>();
}

std::string Config::get_string(std::string_view key) const {
  const Json& value = need(key);
  if (!value.is_string()) wrong_type(key, "a string", value);
  return value.get<std::string>();
}

std::vector<std::string> Config::get_strings(std::string_view key) const {
  const Json& value = need(key);
  std::vector<std::string> strings;
  if (!value.is_array()) wrong_type(key, "an array of strings", value);
  for (const Json& item : value) {
    if (!item.is_string()) wrong_type(key, "an array of strings", item);
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

int64_t Config::get_int_or(std::string_view key, int64_t fallback) const {
  return has(key) ? get_int(key) : fallback;
}

double Config::get_double_or(std::string_view key, double fallback) const {
  return has(key) ? get_double(key) : fallback;
}

bool Config::get_bool_or(std::string_view key, bool fallback) const {
  return has(key) ? get_bool(key) : fallback;
}

std::string Config::get_string_or(std::string_view key, std::string fallback) const {
  return has(key) ? get_string(key) : fallback;
}

Config Config::child(std::string_view key) const {
  const Json& value = need(key);
  if (!value.is_object()) wrong_type(key, "an object", value);
  return Config(value, concat(where_, ": ", key));
}

}  // namespace hedgerow::formats
