// What commands that run a model share.
#pragma once

#include <string>

#include "cli/command.h"
#include "models/model_folder.h"

namespace hedgerow::cli {

// Loads a folder in the dtype that the command line asks for.
models::LoadedModel load_model(const std::string& folder, const CommonOptions& common);

}  // namespace hedgerow::cli
