// The explicit list of subcommands.
#pragma once

#include <vector>

#include "cli/command.h"

namespace hedgerow::cli {

// In the order in which help shows them.
const std::vector<Command>& commands();

}  // namespace hedgerow::cli
