#include "base/memory.h"

#include <unistd.h>

#include <fstream>
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

}  // namespace hedgerow
