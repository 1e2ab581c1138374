// BERT: its config.json and its tensors' names, current and old.
#pragma once

#include "models/registry.h"

namespace hedgerow::models {

const Architecture& bert_architecture();

}  // namespace hedgerow::models
