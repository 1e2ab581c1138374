// What commands that run a model share.
#pragma once

#include <string>

#include "cli/command.h"
#include "formats/json.h"
#include "models/model_folder.h"

namespace hedgerow::cli {

// Loads a folder in the dtype that the command line asks for.
models::LoadedModel load_model(const std::string& folder, const CommonOptions& common);

// What JSON files say of a model: {"name", "architecture", "layers", "heads", "hidden", "mixers"}.
formats::Json describe_model(const std::string& folder, models::Encoder& model);

}  // namespace hedgerow::cli
