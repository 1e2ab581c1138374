// The anchor of libhedgerow: a program that links the library and calls anything keeps every
// operator registration, because they all live in this one shared library.
#include "hedgerow/version.h"

namespace hedgerow {
const char* version() { return HEDGEROW_VERSION; }
}  // namespace hedgerow

extern "C" __attribute__((visibility("default"))) const char* hedgerow_version() {
  return HEDGEROW_VERSION;
}
