// The program: parses the command line, runs one command, turns every outcome into an exit status
// (0 done, 1 failed, 2 wrong usage or input, 130 interrupted) and at most one line on stderr.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/interrupt.h"
#include "base/parallel.h"
#include "cli/commands.h"
#include "hedgerow/error.h"
#include "hedgerow/version.h"

namespace hedgerow::cli {
namespace {

constexpr int kFailed = 1, kWrongUse = 2, kInterrupted = 130;

int report(int status, std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  while (!message.empty() && message.back() == ' ') message.pop_back();
  std::fflush(stdout);
  std::fprintf(stderr, "error: %s\n", message.c_str());
  return status;
}

void add_common_options(CLI::App& command, CommonOptions& options) {
  const char* group = "Common options";
  command.add_option("--threads", options.threads, "threads to use (default: all cores)")
      ->group(group);
  command.add_option("--seed", options.seed, "seed of everything random")
      ->capture_default_str()
      ->group(group);
  command.add_option("--device", options.device, "where to run")
      ->capture_default_str()
      ->group(group);
  command.add_option("--dtype", options.dtype, "float32 or float64")
      ->capture_default_str()
      ->group(group);
  command.add_flag("--json", options.json, "one JSON document on stdout")->group(group);
  command.add_flag("--quiet", options.quiet, "no progress")->group(group);
}

void apply_common_options(const CLI::App& command, const CommonOptions& options) {
  if (command.count("--threads") > 0) {
    constexpr int64_t kMaxThreads = 4096;
    HEDGEROW_CHECK(options.threads >= 1 && options.threads <= kMaxThreads,
                   "--threads: must be in [1, ", kMaxThreads, "]; got ", options.threads);
    at::set_num_threads(static_cast<int>(options.threads));
    set_num_threads(options.threads);
  }
  HEDGEROW_CHECK(options.seed >= 0, "--seed: must be at least 0; got ", options.seed);
  HEDGEROW_CHECK(options.device == "cpu", "--device: must be cpu; got ", options.device);
  HEDGEROW_CHECK(options.dtype == "float32" || options.dtype == "float64",
                 "--dtype: must be float32 or float64; got ", options.dtype);
  at::manual_seed(static_cast<uint64_t>(options.seed));
}

template <typename Number>
bool is_number(const std::string& text) {
  const char *begin = text.data(), *end = begin + text.size();
  Number value;
  const auto [rest, error] = std::from_chars(begin + (begin != end && *begin == '+'), end, value);
  return error == std::errc() && rest == end;
}

// CLI11 takes an empty number for one that is not given, and a huge one for the largest.
void check_numbers(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    const std::string type = option->get_type_name();
    if (type == "INT" || type == "N")
      option->check([](const std::string& text) {
        return is_number<int64_t>(text) ? "" : "must be a whole number of 64 bits; got " + text;
      });
    if (type == "FLOAT")
      option->check([](const std::string& text) {
        return is_number<double>(text) ? "" : "must be a number; got " + text;
      });
  }
}

// Runs the command that the arguments name.
int run(int argc, char** argv) {
  CLI::App app{
      "Attention surgery for transformers: swap a model's attention, win its quality back, "
      "prove it, run it fast.",
      "hedgerow"};
  app.set_version_flag("--version", std::string("hedgerow ") + version());
  app.require_subcommand(1);
  CommonOptions options;
  std::vector<RunCommand> runs;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    runs.push_back(command.add(*sub));
    add_common_options(*sub, options);
    check_numbers(*sub);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    const auto chosen = app.get_subcommands();
    const std::string help =
        chosen.empty() ? "hedgerow --help" : "hedgerow " + chosen[0]->get_name() + " --help";
    return report(kWrongUse, concat(e.what(), "; see ", help));
  }
  const CLI::App* chosen = app.get_subcommands().at(0);
  apply_common_options(*chosen, options);
  for (size_t i = 0; i < runs.size(); ++i) {
    if (chosen->get_name() == commands()[i].name) return runs[i](options);
  }
  return kWrongUse;
}

int guarded_run(int argc, char** argv) {
  try {
    const int status = run(argc, argv);
    if (std::fflush(stdout) != 0) return report(kFailed, "cannot write to standard output");
    return status;
  } catch (const Error& e) {
    return report(kWrongUse, e.what());
  } catch (const Interrupted& e) {
    return report(kInterrupted, e.what());
  } catch (const c10::Error& e) {
    const std::string text = e.what_without_backtrace();
    return report(kFailed, text.substr(0, text.find('\n')));
  } catch (const std::bad_alloc&) {
    return report(kFailed, "out of memory");
  } catch (const std::exception& e) {  // Failure and whatever else
    return report(kFailed, e.what());
  } catch (...) {
    return report(kFailed, "an error of unknown kind");
  }
}

}  // namespace
}  // namespace hedgerow::cli

// The program as a function; returns the exit status.
extern "C" int hedgerow_main(int argc, char** argv) {
  hedgerow::install_interrupt_handler();
  return hedgerow::cli::guarded_run(argc, argv);
}
