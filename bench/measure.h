// How this project measures: alternatives take turns in one process, medians are compared, the
// core's own peak is measured in the same rounds because clocks drift.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hedgerow::bench {

struct Contender {
  std::string name;
  std::function<void()> run;
};

// Median seconds of one call of each contender, in their order. Every round lets each contender run
// for at least `min_seconds` (at least once); one uncounted round warms up.
std::vector<double> median_seconds(const std::vector<Contender>& contenders, int64_t rounds,
                                   double min_seconds);

// Bytes by which running `work` raised the process's peak resident memory over what it held before,
// or -1 where the system cannot tell (needs Linux /proc/self/clear_refs). `work` keeps its result
// alive until it returns, and has run before, so that lasting buffers of libraries do not count.
int64_t peak_bytes(const std::function<void()>& work);

// Multiply-adds a second (times two) that one core reaches in registers.
double fma_peak_flops();

// What the machine and the build are: processor, SIMD target, torch version, threads.
struct Machine {
  std::string processor, simd_target, torch_version;
  int64_t threads = 0;
};
Machine machine();

}  // namespace hedgerow::bench
