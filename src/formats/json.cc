#include "formats/json.h"

#include <cmath>
#include <unordered_set>
#include <vector>

#include "base/atomic_file.h"
#include "hedgerow/error.h"

namespace hedgerow::formats {
namespace {

// Builds the document from the parser's events. The library's own builder keeps the last of two
// equal keys and has no limit of depth.
class StrictBuilder {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  StrictBuilder(const std::string& where, int max_depth) : where_(where), max_depth_(max_depth) {}

  bool null() { return add(nullptr) != nullptr; }
  bool boolean(bool value) { return add(value) != nullptr; }
  bool number_integer(number_integer_t value) { return add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) { return add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t&) { return add(value) != nullptr; }
  bool string(string_t& value) { return add(std::move(value)) != nullptr; }
  bool binary(binary_t&) { return false; }  // never in text
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_array() { return close(); }
  bool end_object() { return close(); }

  bool key(string_t& name) {
    HEDGEROW_CHECK(open_.back().keys.insert(name).second, where_,
                   ": not valid JSON: every key may stand once in an object; got twice ",
                   quote(name));
    open_.back().pending_key = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ...": keep
    // what follows the bracket.
    std::string reason = error.what();
    const size_t bracket = reason.find("] ");
    if (bracket != std::string::npos) reason = reason.substr(bracket + 2);
    for (char& c : reason)
      if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    if (reason.size() > 200) reason.resize(200);
    if (find_invalid_utf8(reason) != std::string::npos) reason.clear();
    throw Error(concat(where_, ": not valid JSON at byte ", position, ": ", reason));
  }

  Json take() { return std::move(root_); }

 private:
  struct Level {
    Json* value;
    std::unordered_set<std::string> keys;
    std::string pending_key;
  };

  template <typename Value>
  Json* add(Value&& value) {
    if (open_.empty()) {
      root_ = Json(std::forward<Value>(value));
      return &root_;
    }
    Level& level = open_.back();
    if (level.value->is_array()) {
      level.value->push_back(Json(std::forward<Value>(value)));
      return &level.value->back();
    }
    auto& members = level.value->get_ref<Json::object_t&>();
    members.emplace_back(std::move(level.pending_key), Json(std::forward<Value>(value)));
    return &members.back().second;
  }

  bool open(Json&& empty) {
    HEDGEROW_CHECK(static_cast<int>(open_.size()) < max_depth_, where_,
                   ": not valid JSON: nesting goes to ", max_depth_, " levels at most; got more");
    // The container is filled in place: its parent does not grow before it is closed.
    open_.push_back({add(std::move(empty)), {}, {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& where_;
  const int max_depth_;
  Json root_;
  std::vector<Level> open_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  const size_t invalid = find_invalid_utf8(text);
  HEDGEROW_CHECK(invalid == std::string_view::npos, where,
                 ": JSON must be UTF-8; got an invalid sequence at byte ", invalid);
  // The parser below takes a zero byte for the end.
  const size_t zero = text.find('\0');
  HEDGEROW_CHECK(zero == std::string_view::npos, where, ": not valid JSON: a zero byte at byte ",
                 zero);
  StrictBuilder builder(where, limits.max_depth);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

Json read_json_file(const std::string& path, const JsonLimits& limits) {
  return parse_json(read_file(path), path, limits);
}

std::string dump_json(const Json& value, int indent) {
  try {
    return value.dump(indent);
  } catch (const Json::exception&) {
    throw Error("write JSON: strings must be UTF-8; got other bytes");
  }
}

Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

const char* kind_name(const Json& value) { return value.is_null() ? "null" : value.type_name(); }

const Json* find_member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  for (const auto& [name, value] : object.get_ref<const Json::object_t&>())
    if (name == key) return &value;
  return nullptr;
}

std::string quote(std::string_view text) {
  constexpr size_t kMaxBytes = 80;
  std::string shown(text.substr(0, kMaxBytes));
  while (find_invalid_utf8(shown) != std::string::npos && text.size() > kMaxBytes &&
         shown.size() > kMaxBytes - 4)
    shown.pop_back();  // a sequence cut in the middle
  std::string text_in_quotes = Json(shown).dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > kMaxBytes ? text_in_quotes + "..." : text_in_quotes;
}

std::string excerpt(const Json& value) {
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  if (value.is_structured()) return concat("an ", kind_name(value));
  return value.dump();
}

size_t find_invalid_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  const size_t size = text.size();
  size_t i = 0;
  while (i < size) {
    const unsigned char lead = bytes[i];
    if (lead < 0x80) {
      ++i;
      continue;
    }
    // Lead byte -> length, and the range of the second byte (no overlong forms, no surrogates).
    const size_t length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (length == 0 || length > size - i) return i;
    const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (bytes[i + 1] < low || bytes[i + 1] > high) return i;
    for (size_t k = 2; k < length; ++k)
      if ((bytes[i + k] & 0xC0) != 0x80) return i;
    i += length;
  }
  return std::string_view::npos;
}

}  // namespace hedgerow::formats
