#include "convert/out_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "hedgerow/error.h"

namespace hedgerow::convert {
namespace {

namespace fs = std::filesystem;

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

// True when `inner` is `outer` or lies in it.
bool contains(const fs::path& outer, const fs::path& inner) {
  std::error_code ignored;
  const fs::path a = fs::weakly_canonical(outer, ignored), b = fs::weakly_canonical(inner, ignored);
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first == a.end();
}

void remove_all(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw Failure(concat("--out: cannot remove ", path, ": ", error.message()));
}

void rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    throw Failure(concat("--out: cannot rename ", from, " to ", to, ": ", std::strerror(errno)));
}

}  // namespace

OutFolder::OutFolder(const std::string& out, bool resume, bool force,
                     const std::vector<std::string>& inputs) {
  HEDGEROW_CHECK(!out.empty(), "--out: a folder is needed; got an empty name");
  fs::path path = fs::path(out).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  out_ = path.string();
  partial_ = out_ + ".partial";
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code ignored;
  HEDGEROW_CHECK(fs::is_directory(parent, ignored), "--out: the folder ", parent.string(),
                 " must exist; got ", out);
  if (exists(out_)) {
    std::vector<std::string> kept = inputs;
    kept.push_back(fs::current_path(ignored).string());
    for (const std::string& input : kept)
      HEDGEROW_CHECK(input.empty() || !contains(out_, input),
                     "--out: must not contain what the run reads or the ", "working folder; got ",
                     out, ", which contains ", input);
  }
  const bool complete = exists(out_ + "/summary.json");
  if (resume && complete && !force) {
    state_ = State::complete;
    return;
  }
  HEDGEROW_CHECK(!exists(out_) || force, "--out: ", out,
                 " exists; give another folder, or --force to replace it");
  if (exists(partial_)) {
    HEDGEROW_CHECK(resume || force, "--out: ", partial_,
                   " exists, an unfinished run; --resume continues it, --force starts again");
    if (resume) state_ = State::resumed;
  }
}

OutFolder::~OutFolder() {
  if (lock_ >= 0) ::close(lock_);
}

// Locks the folder OUT.partial itself, so that no file is left behind. Goes on where the file
// system has no locks.
void OutFolder::lock() {
  if (lock_ >= 0) ::close(lock_);
  lock_ = ::open(partial_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool taken =
      lock_ < 0 ? errno != ENOENT : ::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  HEDGEROW_CHECK(!taken, "--out: ", partial_, " must not be in use; another run is writing it");
}

void OutFolder::prepare() {
  if (exists(partial_)) lock();
  if (state_ == State::resumed) return;
  if (exists(partial_)) remove_all(partial_);
  std::error_code error;
  if (!fs::create_directory(partial_, error))
    throw Failure(concat("--out: cannot make ", partial_, ": ", error.message()));
  lock();
}

std::string OutFolder::file(const char* name) const { return (fs::path(partial_) / name).string(); }

void OutFolder::finish() {
  remove_all(file("training"));
  if (!exists(out_)) {
    rename(partial_, out_);
    return;
  }
  // One system call swaps the two; where the file system cannot, OUT is missing for a moment.
  if (::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, out_.c_str(), RENAME_EXCHANGE) == 0) {
    remove_all(partial_);
    return;
  }
  const std::string old = out_ + concat(".old-", ::getpid());
  rename(out_, old);
  rename(partial_, out_);
  remove_all(old);
}

}  // namespace hedgerow::convert
