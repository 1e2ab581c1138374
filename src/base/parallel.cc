#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace hedgerow {
namespace {

std::atomic<int64_t> fallback_threads{1};

void run_std_threads(int64_t num_workers, const std::function<void(int64_t)>& body) {
  std::exception_ptr failure;
  std::mutex mutex;
  auto guarded = [&](int64_t worker) {
    try {
      body(worker);
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(num_workers - 1);
  for (int64_t w = 1; w < num_workers; w++) threads.emplace_back(guarded, w);
  guarded(0);
  for (std::thread& t : threads) t.join();
  if (failure) std::rethrow_exception(failure);
}

ParallelHook hook = run_std_threads;
int64_t (*hook_threads)() = nullptr;

}  // namespace

void set_parallel_hook(ParallelHook new_hook, int64_t (*threads)()) {
  hook = new_hook ? new_hook : run_std_threads;
  hook_threads = new_hook ? threads : nullptr;
}

int64_t num_threads() { return hook_threads ? hook_threads() : fallback_threads.load(); }

void set_num_threads(int64_t count) { fallback_threads = std::max<int64_t>(count, 1); }

int64_t max_workers(int64_t num_tasks) {
  return std::max<int64_t>(1, std::min(num_threads(), num_tasks));
}

void parallel_for(int64_t num_tasks, const std::function<void(int64_t, int64_t)>& task) {
  const int64_t workers = max_workers(num_tasks);
  if (workers == 1) {
    for (int64_t i = 0; i < num_tasks; i++) task(i, 0);
    return;
  }
  std::atomic<int64_t> next{0};
  hook(workers, [&](int64_t worker) {
    for (int64_t i = next++; i < num_tasks; i = next++) task(i, worker);
  });
}

}  // namespace hedgerow
