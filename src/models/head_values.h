// What the mixers of a model declare of their heads (nn::Mixer::head_values), layer by layer.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/encoder.h"

namespace hedgerow::models {

// "alpha" -> [layer][head]; NaN in layers whose mixer declares no such value. Empty where none
// declares any.
std::map<std::string, std::vector<std::vector<double>>> head_values(Encoder& model);

}  // namespace hedgerow::models
