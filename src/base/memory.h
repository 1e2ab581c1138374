// Memory of the machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hedgerow {

// Bytes that new allocations may take without swapping: Linux's MemAvailable, else the free pages.
int64_t available_memory();

// At least `bytes` (> 0), aligned to 64 bytes, for std::free; throws std::bad_alloc. Where the
// system has huge pages on request, large memory lies in them: it is given a page at a time when it
// is first touched, and 4 KB pages of scratch that a call frees again cost a tenth of a large
// kernel's time.
void* allocate_aligned(size_t bytes);

}  // namespace hedgerow
