// Files that appear whole or not at all.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace hedgerow {

// Writes to a temporary file beside the target and renames it over the target in commit(). Without
// commit() the target is untouched and the temporary file is removed.
class AtomicFile {
 public:
  // Throws Error when the folder does not exist, Failure when the file cannot be opened.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Throws Failure that names the file, the bytes asked for and the system's reason (disk full).
  void write(const void* data, int64_t num_bytes);
  void write(std::string_view text) { write(text.data(), static_cast<int64_t>(text.size())); }

  // Flushes to the disk and renames. Throws Failure; then the old file is still there.
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  std::FILE* file_ = nullptr;
};

// One call for small files.
void write_file_atomically(const std::string& path, std::string_view contents);

// Whole contents; throws Error naming the path and the reason.
std::string read_file(const std::string& path);

}  // namespace hedgerow
