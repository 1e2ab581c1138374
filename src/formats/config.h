// config.json of a Hugging Face folder: typed look-ups with clear errors, unknown keys kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/json.h"

namespace hedgerow::formats {

class Config {
 public:
  // `where` stands in front of every message: the file's path.
  Config(Json document, std::string where);
  static Config load(const std::string& path);
  // <folder>/config.json
  static Config load_folder(const std::string& folder);

  // True when the key is there and not null.
  bool has(std::string_view key) const { return find(key) != nullptr; }
  // The value, or nullptr when the key is missing or null.
  const Json* find(std::string_view key) const;

  // Throw Error that names file, key and what was found when the key is missing (or null) or has
  // another type. Whole numbers do for get_double; 1.0 does for get_int.
  int64_t get_int(std::string_view key) const;
  double get_double(std::string_view key) const;
  bool get_bool(std::string_view key) const;
  std::string get_string(std::string_view key) const;
  std::vector<std::string> get_strings(std::string_view key) const;

  // The same with a value for a missing (or null) key; a wrong type is still an error.
  int64_t get_int_or(std::string_view key, int64_t fallback) const;
  double get_double_or(std::string_view key, double fallback) const;
  bool get_bool_or(std::string_view key, bool fallback) const;
  std::string get_string_or(std::string_view key, std::string fallback) const;

  // Whole number in [low, high].
  int64_t get_int_in(std::string_view key, int64_t low, int64_t high) const;

  // A nested object, named "<where>: <key>" in messages.
  Config child(std::string_view key) const;

  const Json& json() const { return document_; }
  const std::string& where() const { return where_; }

 private:
  const Json& need(std::string_view key) const;
  [[noreturn]] void wrong_type(std::string_view key, const char* wanted, const Json& got) const;

  Json document_;
  std::string where_;
};

}  // namespace hedgerow::formats
