// The HTML report of a run: one file that opens offline. What it reads: docs/RUN_FOLDER.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/run_folder.h"

namespace hedgerow::report {

// The page as one string: template, styles, fonts, charts and scripts of this library, and the data
// of the run. It refers to nothing outside itself and forbids the browser to fetch anything.
std::string render_report(const RunFolder& run);

// Reads `run_folder` and writes RUN/report.html, or `html_path` when that is given, whole or not at
// all; returns the path written. Throws Error that names the file and the rule when a file is there
// and not right, or when the folder has none of the files; Failure when the page cannot be written.
std::string write_report(const std::string& run_folder, const std::string& html_path = {});

}  // namespace hedgerow::report
