// hedgerow report: the HTML page of a run folder.
#include "report/report.h"

#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "nlohmann/json.hpp"

namespace hedgerow::cli {
namespace {

struct ReportOptions {
  std::string run, output;
};

int run(const CommonOptions& common, const ReportOptions& options) {
  const std::string path = report::write_report(options.run, options.output);
  if (common.json) {
    std::printf("%s\n", nlohmann::json({{"report", path}})
                            .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                            .c_str());
  } else if (!common.quiet) {
    std::printf("written to %s\n", path.c_str());
  }
  return 0;
}

}  // namespace

RunCommand add_report(CLI::App& command) {
  auto options = std::make_shared<ReportOptions>();
  command.add_option("run", options->run, "run folder (docs/RUN_FOLDER.md)")
      ->required()
      ->type_name("RUN");
  command.add_option("--output", options->output, "page to write (default RUN/report.html)")
      ->type_name("FILE");
  return [options](const CommonOptions& common) { return run(common, *options); };
}

}  // namespace hedgerow::cli
