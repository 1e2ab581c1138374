#include "ops/common/path.h"

#include <ATen/Parallel.h>

#include <atomic>

#include "base/parallel.h"

namespace hedgerow {
namespace {

std::atomic<Path> current{Path::automatic};

// Kernels run on libtorch's threads: torch.set_num_threads holds for them, and no second pool
// competes with the first.
void run_on_torch_threads(int64_t num_workers, const std::function<void(int64_t)>& body) {
  at::parallel_for(0, num_workers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; worker++) body(worker);
  });
}

int64_t torch_threads() { return at::in_parallel_region() ? 1 : at::get_num_threads(); }

const bool installed = [] {
  set_parallel_hook(run_on_torch_threads, torch_threads);
  return true;
}();

}  // namespace

void set_path(Path path) { current = path; }
Path path() { return current; }

}  // namespace hedgerow

// For the Python package: 0 automatic, 1 fast_only, 2 composite_only.
extern "C" __attribute__((visibility("default"))) void hedgerow_set_path(int path) {
  hedgerow::set_path(static_cast<hedgerow::Path>(path));
}
extern "C" __attribute__((visibility("default"))) int hedgerow_path() {
  return static_cast<int>(hedgerow::path());
}
