// Errors of every layer. Torch-free.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace hedgerow {

// Wrong use or wrong input: the message is one line, "where: rule; got values". The program prints
// it as `error: ...` and exits with 2.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The input was right and the machine failed: disk full, file vanished, no memory. Exit status 1.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The user interrupted the program (SIGINT or SIGTERM). Exit status 130.
class Interrupted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace hedgerow

// Throws hedgerow::Error made of the remaining arguments unless the condition holds.
#define HEDGEROW_CHECK(condition, ...)                                          \
  do {                                                                          \
    if (!(condition)) throw ::hedgerow::Error(::hedgerow::concat(__VA_ARGS__)); \
  } while (false)
