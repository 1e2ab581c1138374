// The safetensors file: an 8-byte little-endian header length, a JSON header, the tensors' bytes.
// https://huggingface.co/docs/safetensors
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "formats/dtype.h"

namespace hedgerow::formats {

using Metadata = std::map<std::string, std::string>;

// A tensor in a file. `data` is row-major, little-endian, and aligned to nothing in particular.
struct TensorView {
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;  // empty: one number
  const char* data = nullptr;
  int64_t num_bytes = 0;
};

// "[2, 3]"
std::string shape_text(const std::vector<int64_t>& shape);

// Header and views of one file held in memory.
struct SafetensorsLayout {
  std::map<std::string, TensorView, std::less<>> tensors;
  Metadata metadata;
};

// Checks and reads the header of a whole file's bytes; views point into `file`. Throws Error
// "<where>: ..." with a text of its own for each fault: a file that is something else (Git-LFS
// pointer, zip, pickle, ... are named), too small, header too large or longer than the file, header
// that does not start with '{', is not UTF-8, not JSON or not a table of tensors (unknown dtype,
// negative or missing numbers, a name twice, metadata that is not text), a shape that overflows or
// disagrees with its offsets, tensors that overlap or leave a hole, a truncated file, bytes after
// the last tensor.
SafetensorsLayout parse_safetensors(std::string_view file, const std::string& where);

// A mapped file with its layout.
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::string& path);

  const std::map<std::string, TensorView, std::less<>>& tensors() const { return layout_.tensors; }
  const Metadata& metadata() const { return layout_.metadata; }
  const std::string& path() const { return file_->path(); }

  // Owns the memory that the views point into.
  const std::shared_ptr<const MappedFile>& mapping() const { return file_; }

 private:
  std::shared_ptr<const MappedFile> file_;
  SafetensorsLayout layout_;
};

struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
};

// Bytes that a tensor of this kind takes. Throws Error that names it on a negative dimension,
// overflow, or a packed type that does not fill its last byte.
int64_t tensor_bytes(const TensorSpec& spec);

// Writes a file tensor by tensor; the target appears whole in commit() or not at all. The same
// tensors and metadata give the same bytes: wide types first, then by name, so that every tensor is
// aligned to its element size.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, std::vector<TensorSpec> specs,
                    const Metadata& metadata);

  // The order in which append() wants the tensors.
  const std::vector<TensorSpec>& order() const { return specs_; }

  // Appends bytes of the current tensor: whole, or in parts that add up to it.
  void append(const void* data, int64_t num_bytes);

  // Throws Error when bytes are missing, Failure when the disk refuses.
  void commit();

 private:
  AtomicFile file_;
  std::string path_;
  std::vector<TensorSpec> specs_;
  int64_t remaining_ = 0;
};

// All at once: `bytes` gives the data of a tensor, of tensor_bytes(spec) bytes.
void write_safetensors(const std::string& path, std::vector<TensorSpec> specs,
                       const Metadata& metadata,
                       const std::function<const void*(const TensorSpec&)>& bytes);

}  // namespace hedgerow::formats
