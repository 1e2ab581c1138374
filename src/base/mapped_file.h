// A file's bytes as memory, read by the system when they are touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace hedgerow {

// Read-only mapping of a regular file. Pointers into it stay valid as long as the object lives.
class MappedFile {
 public:
  // Throws Error that names the path when it is missing, a folder, or not a regular file; Failure
  // when the system refuses the mapping.
  static std::shared_ptr<const MappedFile> open(const std::string& path);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::string_view bytes() const { return {data_, size_}; }

 private:
  MappedFile() = default;

  std::string path_;
  const char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hedgerow
