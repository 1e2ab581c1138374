// The state of a training run in one file: tensors and a few numbers, whole or not at all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace hedgerow::train {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

struct RunState {
  std::string stage;
  int64_t step = 0;       // steps done; also the index of the next batch
  double time_s = 0;      // spent in the stage
  int64_t log_bytes = 0;  // size of metrics.jsonl
  double best_loss = 0;   // lowest held-out loss so far; infinity before the first
};

// Writes tensors and state to <folder>/state.safetensors; the folder is made when missing. The old
// file stands until the new one is complete. Throws Failure (disk full).
void save_checkpoint(const std::string& folder, const RunState& state, const NamedTensors& tensors);

bool has_checkpoint(const std::string& folder);

// Copies the file's values into `tensors`. Throws Error that names the file when the tensors'
// names, shapes or types are not those of the file, or when it is another stage's.
RunState load_checkpoint(const std::string& folder, const std::string& stage,
                         const NamedTensors& tensors);

// Its numbers without its tensors.
RunState read_checkpoint_state(const std::string& folder);

}  // namespace hedgerow::train
