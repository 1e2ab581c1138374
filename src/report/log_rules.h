// What must hold of the logs of a run, files of one JSON object a line (docs/RUN_FOLDER.md). A last
// line without its end, as in a run that still writes, is left out where it is cut off.
#pragma once

#include <string>
#include <string_view>

#include "report/run_folder.h"

namespace hedgerow::report {

// metrics.jsonl: its lines with stage and split, long curves thinned. Throws Error that names the
// line, the place and the rule, as read_head_values() does.
Json read_metrics(const std::string& path, std::string_view text);

// head_values.jsonl: its lines with stage, each with all values that are known by then, thinned.
Json read_head_values(const std::string& path, std::string_view text);

}  // namespace hedgerow::report
