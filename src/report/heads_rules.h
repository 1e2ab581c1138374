// What must hold of heads.json (docs/RUN_FOLDER.md).
#pragma once

#include "report/json_rules.h"

namespace hedgerow::report {

// Throws Error that names the file, the place and the rule.
void check_heads(const JsonRules& rules, const Json& heads);

}  // namespace hedgerow::report
