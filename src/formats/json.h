// Strict JSON: what RFC 8259 allows, and nothing that two readers could understand differently.
#pragma once

#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace hedgerow::formats {

// Objects keep the order of their keys, so that a rewritten file differs only where it should.
// Lookups walk the keys: iterate over large objects instead of searching them.
using Json = nlohmann::ordered_json;

struct JsonLimits {
  int max_depth = 64;
};

// Parses one document. Throws Error "<where>: ..." for anything but JSON, bytes that are not UTF-8,
// a key given twice in one object (named), nesting beyond the limit, or text after the document.
Json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits = {});

// Reads and parses a file; errors name the path.
Json read_json_file(const std::string& path, const JsonLimits& limits = {});

// Compact text; every string must be UTF-8 (Error otherwise). indent < 0: one line.
std::string dump_json(const Json& value, int indent = -1);

// JSON has no NaN or infinity: they become null.
Json finite_or_null(double value);

// "string", "number", "object", ...: how errors call a value's kind.
const char* kind_name(const Json& value);

// The member, or nullptr; nullptr as well when `object` is no object.
const Json* find_member(const Json& object, std::string_view key);

// The value as quoted, shortened text for messages.
std::string excerpt(const Json& value);
std::string quote(std::string_view text);

// Offset of the first byte that is not part of valid UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text);

}  // namespace hedgerow::formats
