#pragma once

#define HEDGEROW_VERSION "0.1.0"

namespace hedgerow {

// Version of the loaded library, "major.minor.patch".
const char* version();

}  // namespace hedgerow
