#include "cli/typed_command.h"

#include <exception>
#include <sstream>

#include "base/atomic_file.h"

namespace hedgerow::cli {

std::string typed_command() {
  std::string out;
  std::string all;
  try {
    all = read_file("/proc/self/cmdline");
  } catch (const std::exception&) {
    return "hedgerow";
  }
  std::istringstream words(all);
  for (std::string word; std::getline(words, word, '\0');) {
    if (out.empty()) word = word.substr(word.find_last_of('/') + 1);
    const bool plain =
        !word.empty() && word.find_first_of(" \t\n\"'\\$&|;<>()*?`#~") == std::string::npos;
    if (!out.empty()) out += ' ';
    if (plain) {
      out += word;
      continue;
    }
    out += '\'';
    for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    out += '\'';
  }
  return out;
}

}  // namespace hedgerow::cli
