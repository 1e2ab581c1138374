// Work is cut into tasks whose number and content follow from shapes alone; which thread runs a
// task never changes a result. The layer that owns threads (libtorch's pool, or the plain
// std::thread fallback below) is installed as a hook.
#pragma once

#include <cstdint>
#include <functional>

namespace hedgerow {

// Runs body(worker) for worker = 0 .. num_workers - 1, concurrently where it can, and returns when
// all are done. An exception of any worker is rethrown.
using ParallelHook = void (*)(int64_t num_workers, const std::function<void(int64_t)>& body);

// Installs the hook and the function that says how many threads there are; nullptr restores the
// fallback.
void set_parallel_hook(ParallelHook hook, int64_t (*num_threads)());

int64_t num_threads();

// Threads of the fallback (default 1); with a hook installed the hook's owner decides instead.
void set_num_threads(int64_t count);

// Calls task(i, worker) once for every i in [0, num_tasks). Tasks are handed out one by one, so
// that uneven ones (causal tiles) balance; put the long ones first. worker < num_workers() of this
// call identifies scratch memory.
void parallel_for(int64_t num_tasks, const std::function<void(int64_t task, int64_t worker)>& task);

// Upper bound of the workers that parallel_for(num_tasks, ..) will use, to size scratch memory.
int64_t max_workers(int64_t num_tasks);

}  // namespace hedgerow
