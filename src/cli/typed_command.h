// The command line for records of a run.
#pragma once

#include <string>

namespace hedgerow::cli {

// As typed, quoted where a shell needs it, from the system's own record; "hedgerow" where there is
// none.
std::string typed_command();

}  // namespace hedgerow::cli
