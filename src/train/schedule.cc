#include "train/schedule.h"

#include <cmath>
#include <numbers>

namespace hedgerow::train {

double Schedule::factor(int64_t step) const {
  if (step < warmup_steps) return static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  if (kind == Kind::constant || steps <= warmup_steps) return 1.0;
  const double done =
      static_cast<double>(step - warmup_steps) / static_cast<double>(steps - warmup_steps);
  return 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

}  // namespace hedgerow::train
