#include "models/registry.h"

#include "hedgerow/error.h"
#include "models/bert.h"

namespace hedgerow::models {

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = {
      bert_architecture(),
  };
  return all;
}

const Architecture& find_architecture(const std::string& model_type, const std::string& where) {
  std::string known;
  for (const Architecture& architecture : architectures()) {
    const std::string converted = kConvertedPrefix + architecture.model_type;
    if (model_type == architecture.model_type || model_type == converted) return architecture;
    known += (known.empty() ? "" : ", ") + architecture.model_type + ", " + converted;
  }
  throw Error(
      concat(where, ": unknown architecture (model_type) \"", model_type, "\"; known: ", known));
}

}  // namespace hedgerow::models
