// head_values.jsonl: how the values that mixers declare of their heads move while a model trains.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/encoder.h"
#include "train/json_log.h"

namespace hedgerow::train {

class HeadValuesLog {
 public:
  // Continues the file, where there is one, behind step `steps_done` of `stage`: what was written
  // of later steps is cut off. Throws Error on a line that is not one of this log.
  HeadValuesLog(std::string path, models::Encoder& model, std::string stage, int64_t steps_done);

  // A line of the values that are not as they were last written, rounded to 6 digits; none where
  // nothing has moved. The file appears with its first line. Throws Failure (disk full).
  void write(int64_t step);

 private:
  // Remembers what the lines up to that step have written and returns their bytes.
  int64_t recall(const std::string& text, int64_t steps_done);

  std::string path_;
  models::Encoder& model_;
  std::string stage_;
  formats::Json written_ = formats::Json::object();  // by name, as last written
  std::optional<JsonLog> log_;
};

}  // namespace hedgerow::train
