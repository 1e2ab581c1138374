#include "train/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace hedgerow::train {
namespace {
constexpr int64_t kBarWidth = 24;
constexpr double kTerminalInterval_s = 0.2;
constexpr double kPlainInterval_s = 5.0;
}  // namespace

std::string clock_text(double seconds) {
  const int64_t s = static_cast<int64_t>(std::max(0.0, seconds) + 0.5);
  char text[32];
  if (s < 3600)
    std::snprintf(text, sizeof text, "%lld:%02lld", static_cast<long long>(s / 60),
                  static_cast<long long>(s % 60));
  else
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", static_cast<long long>(s / 3600),
                  static_cast<long long>(s / 60 % 60), static_cast<long long>(s % 60));
  return text;
}

Progress::Progress(std::string label, int64_t total, bool quiet, int64_t already_done)
    : label_(std::move(label)),
      total_(total),
      start_(already_done),
      done_(already_done),
      quiet_(quiet),
      terminal_(::isatty(2) != 0) {}

Progress::~Progress() {
  if (terminal_ && last_width_ > 0) std::fputc('\n', stderr);
}

void Progress::update(int64_t done, const std::string& detail) {
  done_ = done;
  if (quiet_ || total_ <= 0) return;
  const double now = timer_.seconds();
  const bool end = done >= total_;
  if (terminal_) {
    if (!end && now - last_print_ < kTerminalInterval_s) return;
  } else {
    const int64_t tenth = done * 10 / total_;
    if (!end && tenth == last_tenth_) return;
    if (!end && last_tenth_ >= 0 && now - last_print_ < kPlainInterval_s) return;
    last_tenth_ = tenth;
  }
  last_print_ = now;
  print(detail, now);
}

void Progress::print(const std::string& detail, double now) {
  const double rate = static_cast<double>(done_ - start_) / std::max(now, 1e-9);
  std::string line = label_ + " ";
  if (terminal_) {
    const int64_t filled = kBarWidth * done_ / total_;
    line += "[";
    line.append(filled, '#').append(kBarWidth - filled, '.') += "] ";
  }
  line += std::to_string(done_) + "/" + std::to_string(total_);
  if (!detail.empty()) line += "  " + detail;
  if (done_ >= total_)
    line += "  done in " + clock_text(now);
  else if (rate > 0)
    line += "  " + clock_text(static_cast<double>(total_ - done_) / rate) + " left";
  if (!terminal_) {
    std::fprintf(stderr, "%s\n", line.c_str());
    return;
  }
  const size_t width = line.size();
  if (width < last_width_) line.append(last_width_ - width, ' ');
  last_width_ = width;
  std::fprintf(stderr, "\r%s", line.c_str());
  std::fflush(stderr);
}

}  // namespace hedgerow::train
