#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "hedgerow/error.h"

namespace hedgerow {
namespace {

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  HEDGEROW_CHECK(file.value >= 0, "read: cannot open ", path, ": ", std::strerror(errno));
  struct stat status {};
  if (::fstat(file.value, &status) != 0)
    throw Failure(concat("read: cannot inspect ", path, ": ", std::strerror(errno)));
  HEDGEROW_CHECK(!S_ISDIR(status.st_mode), "read: a file is needed; got the folder ", path);
  HEDGEROW_CHECK(S_ISREG(status.st_mode), "read: a regular file is needed; got ", path);

  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->path_ = path;
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) return mapped;  // the system maps no empty range
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.value, 0);
  if (data == MAP_FAILED)
    throw Failure(
        concat("read: cannot map ", size, " bytes of ", path, ": ", std::strerror(errno)));
  mapped->data_ = static_cast<const char*>(data);
  mapped->size_ = size;
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

}  // namespace hedgerow
