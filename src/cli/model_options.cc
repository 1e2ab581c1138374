#include "cli/model_options.h"

#include "convert/artifacts.h"
#include "models/mixer_config.h"

namespace hedgerow::cli {

models::LoadedModel load_model(const std::string& folder, const CommonOptions& common) {
  models::LoadOptions options;
  options.dtype = common.dtype == "float64" ? at::kDouble : at::kFloat;
  return models::load_model(folder, options);
}

formats::Json describe_model(const std::string& folder, models::Encoder& model) {
  const models::EncoderConfig& c = model.config();
  return {{"name", convert::display_name(folder)},
          {"architecture", c.architecture},
          {"layers", c.num_layers},
          {"heads", c.num_heads},
          {"hidden", c.hidden_size},
          {"mixers", models::describe_mixers(model).at("layers")}};
}

}  // namespace hedgerow::cli
