// metrics.jsonl: one JSON object a line, one line a step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "train/json_log.h"
#include "train/objective.h"

namespace hedgerow::train {

struct MetricsLine {
  std::string stage;
  int64_t step = 0;  // counted from 1 within the stage
  std::string split = "train";
  StepResult result;
  std::optional<double> lr, grad_norm, tokens_per_s;
  double time_s = 0;  // since the stage began, over all resumed parts
};

// Its size is part of a checkpoint: a resumed run cuts off what was written after the checkpoint,
// so that no step appears twice.
class MetricsLog {
 public:
  MetricsLog(std::string path, int64_t keep_bytes) : log_(std::move(path), keep_bytes) {}

  void write(const MetricsLine& line);
  int64_t num_bytes() const { return log_.num_bytes(); }

 private:
  JsonLog log_;
};

// Largest resident memory of this process so far.
int64_t peak_resident_bytes();

}  // namespace hedgerow::train
