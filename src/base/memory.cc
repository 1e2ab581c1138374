#include "base/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <new>
#include <string>

namespace hedgerow {

int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  constexpr char kName[] = "MemAvailable:";
  while (std::getline(file, line))
    if (line.rfind(kName, 0) == 0) return std::stoll(line.substr(sizeof kName - 1)) * 1024;
  return static_cast<int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

void* allocate_aligned(size_t bytes) {
  constexpr size_t kLine = 64, kHugePage = size_t{2} << 20;
  const size_t alignment = bytes < kHugePage ? kLine : kHugePage;
  void* data = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (data == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (alignment == kHugePage) madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return data;
}

}  // namespace hedgerow
