// What must hold of spectra.json (docs/RUN_FOLDER.md).
#pragma once

#include "report/json_rules.h"

namespace hedgerow::report {

// Throws Error that names the file, the place and the rule.
void check_spectra(const JsonRules& rules, const Json& spectra);

}  // namespace hedgerow::report
