#include "cli/commands.h"

namespace hedgerow::cli {

// One declaration and one line in the list for each file of this folder that is a command.
RunCommand add_forward(CLI::App& command);
RunCommand add_report(CLI::App& command);

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      {"forward", "raw outputs of a model for given token ids", add_forward},
      {"report", "HTML page from a run folder", add_report},
  };
  return all;
}

}  // namespace hedgerow::cli
