#include "train/metrics_log.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "formats/json.h"
#include "hedgerow/error.h"

namespace hedgerow::train {

MetricsLog::MetricsLog(const std::string& path, int64_t keep_bytes) : path_(path) {
  file_ = std::fopen(path.c_str(), "ab");
  if (file_ == nullptr)
    throw Failure(concat("metrics: cannot open ", path, ": ", std::strerror(errno)));
  std::fseek(file_, 0, SEEK_END);
  num_bytes_ = std::ftell(file_);
  if (num_bytes_ > keep_bytes) {
    if (::ftruncate(::fileno(file_), keep_bytes) != 0)
      throw Failure(concat("metrics: cannot shorten ", path, ": ", std::strerror(errno)));
    num_bytes_ = keep_bytes;
  }
}

MetricsLog::~MetricsLog() {
  if (file_ != nullptr) std::fclose(file_);
}

void MetricsLog::write(const MetricsLine& line) {
  formats::Json json = {{"stage", line.stage},
                        {"step", line.step},
                        {"split", line.split},
                        {"loss", line.result.loss}};
  for (const auto& [name, value] : line.result.scalars) json[name] = value;
  if (line.lr) json["lr"] = *line.lr;
  if (line.grad_norm) json["grad_norm"] = *line.grad_norm;
  if (line.tokens_per_s) json["tokens_per_s"] = *line.tokens_per_s;
  json["peak_bytes"] = peak_resident_bytes();
  json["time_s"] = line.time_s;
  const std::string text = formats::dump_json(json) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0)
    throw Failure(concat("metrics: cannot write to ", path_, ": ", std::strerror(errno)));
  num_bytes_ += static_cast<int64_t>(text.size());
}

int64_t peak_resident_bytes() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace hedgerow::train
