// Learning rate over a run, as a factor of the peak.
#pragma once

#include <cstdint>

namespace hedgerow::train {

// Linear warm-up over the first steps, then constant or half a cosine down to 0.
struct Schedule {
  enum class Kind { constant, cosine } kind = Kind::cosine;
  int64_t steps = 0;
  int64_t warmup_steps = 0;

  // Factor in [0, 1] for step 0 .. steps - 1; never 0 within the run.
  double factor(int64_t step) const;
};

}  // namespace hedgerow::train
