// An append-only file of one JSON object a line.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "formats/json.h"

namespace hedgerow::train {

class JsonLog {
 public:
  // Opens (creates) the file and cuts it to `keep_bytes`. Throws Failure when the system refuses.
  JsonLog(std::string path, int64_t keep_bytes);
  ~JsonLog();
  JsonLog(const JsonLog&) = delete;
  JsonLog& operator=(const JsonLog&) = delete;

  // Throws Failure (disk full).
  void write(const formats::Json& line);
  int64_t num_bytes() const { return num_bytes_; }

 private:
  std::string path_;
  std::FILE* file_ = nullptr;
  int64_t num_bytes_ = 0;
};

}  // namespace hedgerow::train
