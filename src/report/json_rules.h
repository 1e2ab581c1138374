// Checks of one JSON file: each failure names the file, the place in it, the rule and what was
// there instead.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hedgerow/error.h"
#include "report/run_folder.h"

namespace hedgerow::report {

class JsonRules {
 public:
  explicit JsonRules(std::string path) : path_(std::move(path)) {}

  // Throws Error "report: PATH: `place` rule; got ..." unless the condition holds.
  void require(bool holds, const std::string& place, std::string_view rule, const Json& got) const;

  const Json& object(const Json& value, const std::string& place) const;
  const Json& array(const Json& value, const std::string& place) const;
  void text(const Json& value, const std::string& place) const;
  void number_or_null(const Json& value, const std::string& place) const;
  int64_t positive_integer(const Json& value, const std::string& place) const;

  // [[number or null per head] per layer]; returns the heads of each layer.
  std::vector<int64_t> matrix(const Json& value, const std::string& place) const;

  // Members that may be absent or null.
  void optional_text(const Json& object, const char* key, const std::string& place) const;
  void optional_number(const Json& object, const char* key, const std::string& place) const;
  void optional_object(const Json& object, const char* key, const std::string& place) const;

  // A text, a list of words or null.
  void command(const Json& value, const std::string& place) const;

  // What files say of a model, or null: texts, and sizes that are positive integers.
  void model(const Json& value, const std::string& place) const;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The member, or a JSON null where the object has none.
const Json& member(const Json& object, std::string_view key);

}  // namespace hedgerow::report
