// What a subcommand is. Each lives in a file of its own and adds itself to the list in commands.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "CLI/App.hpp"

namespace hedgerow::cli {

// Options that every command takes.
struct CommonOptions {
  int64_t threads = 0;  // 0 here: not given, libtorch's choice; the command line refuses 0
  int64_t seed = 0;
  std::string device = "cpu";
  std::string dtype = "float32";
  bool json = false;
  bool quiet = false;
};

// Adds the command to the program and returns what runs it: an exit status, or hedgerow::Error
// (status 2), hedgerow::Failure or any other exception (1), hedgerow::Interrupted (130).
using RunCommand = std::function<int(const CommonOptions&)>;
struct Command {
  const char* name;
  const char* summary;
  RunCommand (*add)(CLI::App& command);
};

}  // namespace hedgerow::cli
