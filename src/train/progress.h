// How far a long piece of work is: a bar with rate and time left on a terminal, plain lines
// elsewhere. Everything goes to standard error.
#pragma once

#include <cstdint>
#include <string>

#include "base/timer.h"

namespace hedgerow::train {

class Progress {
 public:
  // `already_done` of `total` steps were done by an earlier run and do not count for the rate.
  Progress(std::string label, int64_t total, bool quiet, int64_t already_done = 0);
  // Ends the bar's line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `detail` stands behind the numbers ("loss 0.31"). Cheap: prints a few times a second on a
  // terminal, else at every tenth of the work and at most every few seconds.
  void update(int64_t done, const std::string& detail = "");

 private:
  void print(const std::string& detail, double now);

  std::string label_;
  int64_t total_, start_, done_;
  bool quiet_, terminal_;
  double last_print_ = -1e9;
  int64_t last_tenth_ = -1;
  size_t last_width_ = 0;
  Timer timer_;
};

// "1:05", "1:02:03"
std::string clock_text(double seconds);

}  // namespace hedgerow::train
