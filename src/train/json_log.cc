#include "train/json_log.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "hedgerow/error.h"

namespace hedgerow::train {

JsonLog::JsonLog(std::string path, int64_t keep_bytes) : path_(std::move(path)) {
  file_ = std::fopen(path_.c_str(), "ab");
  if (file_ == nullptr)
    throw Failure(concat("log: cannot open ", path_, ": ", std::strerror(errno)));
  std::fseek(file_, 0, SEEK_END);
  num_bytes_ = std::ftell(file_);
  if (num_bytes_ <= keep_bytes) return;
  if (::ftruncate(::fileno(file_), keep_bytes) != 0) {
    const int reason = errno;
    std::fclose(file_);
    throw Failure(concat("log: cannot shorten ", path_, ": ", std::strerror(reason)));
  }
  num_bytes_ = keep_bytes;
}

JsonLog::~JsonLog() { std::fclose(file_); }

void JsonLog::write(const formats::Json& line) {
  const std::string text = formats::dump_json(line) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0)
    throw Failure(concat("log: cannot write to ", path_, ": ", std::strerror(errno)));
  num_bytes_ += static_cast<int64_t>(text.size());
}

}  // namespace hedgerow::train
