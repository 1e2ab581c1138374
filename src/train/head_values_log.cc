#include "train/head_values_log.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/atomic_file.h"
#include "hedgerow/error.h"
#include "models/head_values.h"

namespace hedgerow::train {
namespace {

// Nothing that a curve shows is finer, and lines stay short.
formats::Json rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return std::strtod(text, nullptr);
}

formats::Json as_json(const std::vector<std::vector<double>>& table) {
  formats::Json rows = formats::Json::array();
  for (const auto& heads : table) {
    rows.push_back(formats::Json::array());
    for (const double value : heads) rows.back().push_back(rounded(value));
  }
  return rows;
}

}  // namespace

HeadValuesLog::HeadValuesLog(std::string path, models::Encoder& model, std::string stage,
                             int64_t steps_done)
    : path_(std::move(path)), model_(model), stage_(std::move(stage)) {
  if (std::filesystem::exists(path_)) log_.emplace(path_, recall(read_file(path_), steps_done));
}

// A line without its end was cut short by a crash: nothing stands behind it.
int64_t HeadValuesLog::recall(const std::string& text, int64_t steps_done) {
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const formats::Json line =
        formats::parse_json(std::string_view(text).substr(begin, end - begin), path_);
    const formats::Json *stage = formats::find_member(line, "stage"),
                        *step = formats::find_member(line, "step"),
                        *values = formats::find_member(line, "head_values");
    HEDGEROW_CHECK(stage != nullptr && step != nullptr && step->is_number_integer() &&
                       values != nullptr && values->is_object(),
                   path_, ": a line must have stage, step and head_values; got ",
                   formats::excerpt(line));
    if (*stage == stage_ && step->get<int64_t>() > steps_done) break;
    written_.update(*values);
  }
  return static_cast<int64_t>(begin);
}

void HeadValuesLog::write(int64_t step) {
  formats::Json moved = formats::Json::object();
  for (const auto& [name, table] : models::head_values(model_)) {
    formats::Json values = as_json(table);
    if (written_.contains(name) && written_[name] == values) continue;
    moved[name] = std::move(values);
  }
  if (moved.empty()) return;
  if (!log_) log_.emplace(path_, 0);
  log_->write({{"stage", stage_}, {"step", step}, {"head_values", moved}});
  written_.update(moved);
}

}  // namespace hedgerow::train
