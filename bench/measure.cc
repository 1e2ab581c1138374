#include "bench/measure.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <malloc.h>
#include <torch/csrc/api/include/torch/version.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/interrupt.h"
#include "base/timer.h"
#include "hedgerow/kernels/fma_peak.h"
#include "hedgerow/kernels/simd.h"

namespace hedgerow::bench {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A line "Key:   12345 kB" of /proc/self/status, in bytes; -1 when it is not there.
int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key + ":", 0) != 0) continue;
    return std::stoll(line.substr(key.size() + 1)) * 1024;
  }
  return -1;
}

}  // namespace

std::vector<double> median_seconds(const std::vector<Contender>& contenders, int64_t rounds,
                                   double min_seconds) {
  std::vector<std::vector<double>> times(contenders.size());
  for (int64_t round = -1; round < rounds; round++) {
    for (size_t i = 0; i < contenders.size(); i++) {
      check_interrupt();
      const Timer timer;
      int64_t calls = 0;
      do {
        contenders[i].run();
        calls++;
      } while (round >= 0 && timer.seconds() < min_seconds);
      if (round >= 0) times[i].push_back(timer.seconds() / static_cast<double>(calls));
    }
  }
  std::vector<double> medians;
  for (auto& t : times) medians.push_back(median(t));
  return medians;
}

int64_t peak_bytes(const std::function<void()>& work) {
  ::malloc_trim(0);
  {
    std::ofstream clear("/proc/self/clear_refs");
    clear << "5";
    if (!clear.good()) return -1;
  }
  const int64_t before = status_bytes("VmRSS");
  work();
  const int64_t peak = status_bytes("VmHWM");
  return before < 0 || peak < 0 ? -1 : std::max<int64_t>(peak - before, 0);
}

double fma_peak_flops() {
  double best = 0;
  for (int i = 0; i < 3; i++) {
    const Timer timer;
    const int64_t flops = kernels::fma_peak_work(2000000);
    best = std::max(best, static_cast<double>(flops) / timer.seconds());
  }
  return best;
}

Machine machine() {
  Machine m;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    m.processor = line.substr(line.find(':') + 2);
    break;
  }
  m.simd_target = kernels::simd_target();
  m.torch_version = TORCH_VERSION;
  m.threads = at::get_num_threads();
  return m;
}

}  // namespace hedgerow::bench
