// A conversion from beginning to end: swap, distil, recover, verify, write.
#pragma once

#include <functional>
#include <string>

#include "convert/config.h"
#include "formats/json.h"

namespace hedgerow::convert {

// Runs the conversion and returns summary.json's contents, or null when `resume` found OUT
// complete. `before_rename` sees the complete OUT.partial just before it becomes OUT (the report is
// written there). An interruption, also by a signal, leaves OUT.partial in a state that `resume`
// continues to the same result. Throws Error on bad input, Failure on what the machine refuses.
formats::Json run_conversion(const ConvertConfig& config,
                             const std::function<void(const std::string&)>& before_rename);

}  // namespace hedgerow::convert
