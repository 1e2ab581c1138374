#include "train/metrics_log.h"

#include <sys/resource.h>

namespace hedgerow::train {

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
  log_.write(json);
}

int64_t peak_resident_bytes() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace hedgerow::train
