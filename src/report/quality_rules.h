// What must hold of quality.json (docs/RUN_FOLDER.md).
#pragma once

#include "report/json_rules.h"

namespace hedgerow::report {

// Throws Error that names the file, the place and the rule.
void check_quality(const JsonRules& rules, const Json& quality);

}  // namespace hedgerow::report
