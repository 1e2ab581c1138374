// Memory of the machine.
#pragma once

#include <cstdint>

namespace hedgerow {

// Bytes that new allocations may take without swapping: Linux's MemAvailable, else the free pages.
int64_t available_memory();

}  // namespace hedgerow
