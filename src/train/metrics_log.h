// metrics.jsonl: one JSON object a line, one line a step.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

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

// An append-only file. Its size is part of a checkpoint: a resumed run cuts off what was written
// after the checkpoint, so that no step appears twice.
class MetricsLog {
 public:
  // Opens (creates) the file and cuts it to `keep_bytes`. Throws Failure when the system refuses.
  MetricsLog(const std::string& path, int64_t keep_bytes);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // Throws Failure (disk full).
  void write(const MetricsLine& line);
  int64_t num_bytes() const { return num_bytes_; }

 private:
  std::string path_;
  std::FILE* file_ = nullptr;
  int64_t num_bytes_ = 0;
};

// Largest resident memory of this process so far.
int64_t peak_resident_bytes();

}  // namespace hedgerow::train
