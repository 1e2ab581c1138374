#include "base/atomic_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "hedgerow/error.h"

namespace hedgerow {

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  HEDGEROW_CHECK(folder.empty() || std::filesystem::is_directory(folder),
                 "write: the folder must exist; got ", path_);
  temporary_ = concat(path_, ".tmp-", ::getpid());
  file_ = std::fopen(temporary_.c_str(), "wb");
  if (file_ == nullptr)
    throw Failure(concat("write: cannot open ", path_, ": ", std::strerror(errno)));
}

AtomicFile::~AtomicFile() {
  if (file_ != nullptr) std::fclose(file_);
  if (!temporary_.empty()) std::remove(temporary_.c_str());
}

void AtomicFile::write(const void* data, int64_t num_bytes) {
  if (std::fwrite(data, 1, static_cast<size_t>(num_bytes), file_) != static_cast<size_t>(num_bytes))
    throw Failure(
        concat("write: cannot write ", num_bytes, " bytes to ", path_, ": ", std::strerror(errno)));
}

void AtomicFile::commit() {
  const bool flushed = std::fflush(file_) == 0 && ::fsync(::fileno(file_)) == 0;
  const int reason = errno;
  const bool closed = std::fclose(file_) == 0;
  file_ = nullptr;
  if (!flushed || !closed)
    throw Failure(
        concat("write: cannot finish ", path_, ": ", std::strerror(flushed ? errno : reason)));
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0)
    throw Failure(concat("write: cannot rename to ", path_, ": ", std::strerror(errno)));
  temporary_.clear();
}

void write_file_atomically(const std::string& path, std::string_view contents) {
  AtomicFile file(path);
  file.write(contents);
  file.commit();
}

std::string read_file(const std::string& path) {
  std::error_code ignored;
  HEDGEROW_CHECK(!std::filesystem::is_directory(path, ignored),
                 "read: a file is needed; got the folder ", path);
  std::FILE* file = std::fopen(path.c_str(), "rb");
  HEDGEROW_CHECK(file != nullptr, "read: cannot open ", path, ": ", std::strerror(errno));
  std::string out;
  char buffer[1 << 16];
  size_t got;
  while ((got = std::fread(buffer, 1, sizeof buffer, file)) > 0) out.append(buffer, got);
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) throw Failure(concat("read: cannot read ", path, ": ", std::strerror(errno)));
  return out;
}

}  // namespace hedgerow
