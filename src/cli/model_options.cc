#include "cli/model_options.h"

namespace hedgerow::cli {

models::LoadedModel load_model(const std::string& folder, const CommonOptions& common) {
  models::LoadOptions options;
  options.dtype = common.dtype == "float64" ? at::kDouble : at::kFloat;
  return models::load_model(folder, options);
}

}  // namespace hedgerow::cli
