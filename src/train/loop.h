// The one training loop: steps, learning-rate schedule, clipping, log, checkpoints, exact resume.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "train/adamw.h"
#include "train/metrics_log.h"
#include "train/objective.h"
#include "train/schedule.h"

namespace hedgerow::train {

struct LoopConfig {
  std::string stage = "train";  // names the stage in log, checkpoints and progress
  Schedule schedule;            // schedule.steps is the length of the run
  AdamWConfig adamw;
  double max_grad_norm = 0;    // 0: no clipping
  int64_t evaluate_every = 0;  // steps; 0: never
  int64_t observe_every = 0;   // steps; 0: never
  // Called with 0 before the first step and with the steps done after each multiple of
  // observe_every and the last, before a checkpoint of that step: a resumed run repeats no call
  // that its checkpoint has behind it.
  std::function<void(int64_t step)> observe;
  double checkpoint_every_s = 120;  // wall time; where it falls changes no result
  std::string training_folder;      // holds last/ and best/; empty: no checkpoints
  bool quiet = false;
};

struct LoopResult {
  double first_loss = 0;  // of the steps that this call ran
  double last_loss = 0;   // mean of the last tenth of them
  double seconds = 0;     // of the stage, over all resumed parts
};

// Runs the objective to the end of its schedule. With a checkpoint of the same stage in
// training_folder/last it continues from there, with the same result as an uninterrupted run:
// batches follow from the step number, and parameters and optimiser are restored bit by bit.
// A signal (base/interrupt.h) is answered after the current step: checkpoint, then Interrupted.
// Throws Failure naming stage and step when a loss or gradient is not finite.
LoopResult run_loop(Objective& objective, const LoopConfig& config, MetricsLog* log);

}  // namespace hedgerow::train
