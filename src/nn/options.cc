// Typed options of mechanisms.
#include <algorithm>

#include "hedgerow/error.h"
#include "nn/mixer.h"

namespace hedgerow::nn {
namespace {

const char* type_name(const OptionValue& value) {
  constexpr const char* kNames[] = {"true or false", "an integer", "a number", "a string"};
  return kNames[value.index()];
}

std::string known_names(const std::vector<OptionSpec>& specs) {
  std::string names;
  for (const OptionSpec& spec : specs) names += (names.empty() ? "" : ", ") + spec.name;
  return names.empty() ? "none" : names;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

template <typename T>
const T& get(const std::map<std::string, OptionValue>& values, const std::string& name) {
  const auto found = values.find(name);
  const T* value = found == values.end() ? nullptr : std::get_if<T>(&found->second);
  if (value == nullptr) throw std::logic_error("option " + name + " is not declared so");
  return *value;
}

}  // namespace

std::string to_string(const OptionValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const int64_t* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  if (const double* number = std::get_if<double>(&value)) return concat(*number);
  return std::get<std::string>(value);
}

Options::Options(const std::string& kind, const std::vector<OptionSpec>& specs,
                 const std::map<std::string, OptionValue>& given) {
  for (const OptionSpec& spec : specs) values_[spec.name] = spec.default_value;
  for (const auto& [name, given_value] : given) {
    const auto spec = std::find_if(specs.begin(), specs.end(),
                                   [&](const OptionSpec& s) { return s.name == name; });
    HEDGEROW_CHECK(spec != specs.end(), kind, ": unknown option \"", name, "\"; it has ",
                   known_names(specs));
    OptionValue value = given_value;
    const bool wants_double = std::holds_alternative<double>(spec->default_value);
    if (const int64_t* whole = std::get_if<int64_t>(&value); whole != nullptr && wants_double) {
      value = static_cast<double>(*whole);
    }
    HEDGEROW_CHECK(value.index() == spec->default_value.index(), kind, ": option \"", name,
                   "\" must be ", type_name(spec->default_value), "; got ", to_string(value));
    if (const std::string* word = std::get_if<std::string>(&value)) {
      const auto& choices = spec->choices;
      HEDGEROW_CHECK(
          choices.empty() || std::find(choices.begin(), choices.end(), *word) != choices.end(),
          kind, ": option \"", name, "\" must be one of ", joined(choices), "; got \"", *word,
          "\"");
    }
    values_[name] = value;
  }
}

bool Options::get_bool(const std::string& name) const { return get<bool>(values_, name); }
int64_t Options::get_int(const std::string& name) const { return get<int64_t>(values_, name); }
double Options::get_double(const std::string& name) const { return get<double>(values_, name); }
const std::string& Options::get_string(const std::string& name) const {
  return get<std::string>(values_, name);
}

}  // namespace hedgerow::nn
