#include "formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "formats/json.h"
#include "hedgerow/error.h"

namespace hedgerow::formats {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference reader's limit
constexpr size_t kLengthBytes = 8;

struct Signature {
  std::string_view bytes;
  const char* what;
};

// What stands under the name of a safetensors file when it is none.
constexpr Signature kSignatures[] = {
    {"version https://git-lfs", "a git-lfs pointer: fetch the file itself with `git lfs pull`"},
    {{"PK\x03\x04", 4}, "a zip archive (a pickled PyTorch checkpoint?): convert it to safetensors"},
    {{"PK\x05\x06", 4}, "an empty zip archive"},
    {{"\x80\x02", 2}, "a pickle (protocol 2): convert it to safetensors"},
    {{"\x80\x03", 2}, "a pickle (protocol 3): convert it to safetensors"},
    {{"\x80\x04", 2}, "a pickle (protocol 4): convert it to safetensors"},
    {{"\x80\x05", 2}, "a pickle (protocol 5): convert it to safetensors"},
    {"GGUF", "a GGUF file"},
    {{"\x93NUMPY", 6}, "a NumPy file"},
    {{"\x89HDF", 4}, "an HDF5 file"},
    {{"\x1f\x8b", 2}, "a gzip archive"},
    {"<!DOCTYPE", "an HTML page"},
    {"<!doctype", "an HTML page"},
    {"<html", "an HTML page"},
};

// Called once the length field makes no sense: a real header may begin with any of these bytes.
void refuse_other_kinds(std::string_view file, const std::string& where) {
  for (const Signature& signature : kSignatures)
    HEDGEROW_CHECK(file.substr(0, signature.bytes.size()) != signature.bytes, where,
                   ": not a safetensors file; it is ", signature.what);
}

uint64_t read_length(std::string_view file) {
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i)
    length |= static_cast<uint64_t>(static_cast<unsigned char>(file[i])) << (8 * i);
  return length;
}

std::string_view checked_header(std::string_view file, const std::string& where) {
  if (file.size() < kLengthBytes) {
    refuse_other_kinds(file, where);
    throw Error(concat(where,
                       ": header too small: a file has 8 bytes of header length at least; got ",
                       file.size(), " bytes"));
  }
  const uint64_t length = read_length(file);
  if (length > kMaxHeaderBytes) {
    refuse_other_kinds(file, where);
    throw Error(
        concat(where, ": header too large: ", kMaxHeaderBytes, " bytes at most; got ", length));
  }
  if (length > file.size() - kLengthBytes) {
    refuse_other_kinds(file, where);
    throw Error(concat(where, ": header longer than the file: its length field says ", length,
                       " bytes; the file has ", file.size(), " bytes"));
  }
  const std::string_view header = file.substr(kLengthBytes, length);
  if (header.empty() || header.front() != '{') {
    refuse_other_kinds(file, where);
    throw Error(concat(where, ": header must start with '{'; got ",
                       header.empty() ? "an empty header" : quote(header.substr(0, 1))));
  }
  const size_t invalid = find_invalid_utf8(header);
  HEDGEROW_CHECK(invalid == std::string_view::npos, where,
                 ": header must be UTF-8; got an invalid sequence at byte ", invalid,
                 " of the header");
  return header;
}

struct Entry {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

uint64_t read_count(const Json& value, const std::string& where, const std::string& name,
                    const char* field) {
  HEDGEROW_CHECK(value.is_number_unsigned(), where, ": header: ", field, " of tensor ", quote(name),
                 " must hold whole numbers >= 0; got ", excerpt(value));
  return value.get<uint64_t>();
}

const Json& need_member(const Json& object, const char* field, const std::string& where,
                        const std::string& name) {
  const Json* value = find_member(object, field);
  HEDGEROW_CHECK(value != nullptr, where, ": header: tensor ", quote(name), " needs \"", field,
                 "\"; got none");
  return *value;
}

Entry read_entry(const std::string& name, const Json& value, const std::string& where) {
  HEDGEROW_CHECK(value.is_object(), where, ": header: tensor ", quote(name),
                 " must be an object; got ", excerpt(value));
  Entry entry;
  entry.name = name;
  const Json& dtype = need_member(value, "dtype", where, name);
  HEDGEROW_CHECK(dtype.is_string(), where, ": header: dtype of tensor ", quote(name),
                 " must be a string; got ", excerpt(dtype));
  const auto known = dtype_from_name(dtype.get_ref<const std::string&>());
  HEDGEROW_CHECK(known, where, ": header: tensor ", quote(name), " has an unknown dtype; got ",
                 excerpt(dtype));
  entry.dtype = *known;
  const Json& shape = need_member(value, "shape", where, name);
  HEDGEROW_CHECK(shape.is_array(), where, ": header: shape of tensor ", quote(name),
                 " must be an array; got ", excerpt(shape));
  for (const Json& size : shape) {
    const uint64_t count = read_count(size, where, name, "shape");
    HEDGEROW_CHECK(count <= static_cast<uint64_t>(INT64_MAX), where,
                   ": overflow: a dimension of tensor ", quote(name), " does not fit 63 bits; got ",
                   count);
    entry.shape.push_back(static_cast<int64_t>(count));
  }
  const Json& offsets = need_member(value, "data_offsets", where, name);
  HEDGEROW_CHECK(offsets.is_array() && offsets.size() == 2, where,
                 ": header: data_offsets of tensor ", quote(name), " must be two numbers; got ",
                 offsets.dump().substr(0, 80));
  entry.begin = read_count(offsets[0], where, name, "data_offsets");
  entry.end = read_count(offsets[1], where, name, "data_offsets");
  return entry;
}

// Bytes of the tensor; message prefix `where`.
int64_t checked_bytes(const std::string& where, const std::string& name, Dtype dtype,
                      const std::vector<int64_t>& shape) {
  int64_t bits = dtype_bits(dtype);
  for (const int64_t size : shape) {
    HEDGEROW_CHECK(size >= 0, where, ": tensor ", quote(name), " has a negative dimension; got ",
                   shape_text(shape));
    HEDGEROW_CHECK(!__builtin_mul_overflow(bits, size, &bits), where,
                   ": overflow: the size of tensor ", quote(name),
                   " does not fit 63 bits; got shape ", shape_text(shape));
  }
  HEDGEROW_CHECK(bits % 8 == 0, where, ": tensor ", quote(name), " of packed ", dtype_name(dtype),
                 " must fill whole bytes; got shape ", shape_text(shape));
  return bits / 8;
}

Metadata read_metadata(const Json& value, const std::string& where) {
  HEDGEROW_CHECK(value.is_object(), where, ": header: __metadata__ must be an object; got ",
                 excerpt(value));
  Metadata metadata;
  for (const auto& [key, text] : value.get_ref<const Json::object_t&>()) {
    HEDGEROW_CHECK(text.is_string(), where, ": header: __metadata__ holds strings; got ",
                   excerpt(text), " at ", quote(key));
    metadata.emplace(key, text.get_ref<const std::string&>());
  }
  return metadata;
}

// Tensors in order of their bytes: each begins where the one before ends and has its shape's size.
uint64_t check_spans(std::vector<Entry>& entries, const std::string& where) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t expected = 0;
  for (const Entry& entry : entries) {
    const int64_t bytes = checked_bytes(where, entry.name, entry.dtype, entry.shape);
    HEDGEROW_CHECK(entry.end >= entry.begin, where, ": offsets of tensor ", quote(entry.name),
                   " must not end before they begin; got [", entry.begin, ", ", entry.end, "]");
    HEDGEROW_CHECK(entry.begin >= expected, where, ": offsets of tensor ", quote(entry.name),
                   " overlap the tensor before, which ends at ", expected, "; got [", entry.begin,
                   ", ", entry.end, "]");
    HEDGEROW_CHECK(entry.begin == expected, where, ": offsets of tensor ", quote(entry.name),
                   " leave unused bytes after the tensor before, which ends at ", expected,
                   "; got [", entry.begin, ", ", entry.end, "]");
    HEDGEROW_CHECK(entry.end - entry.begin == static_cast<uint64_t>(bytes), where, ": tensor ",
                   quote(entry.name), " of ", dtype_name(entry.dtype), ' ', shape_text(entry.shape),
                   " takes ", bytes, " bytes; its offsets give ", entry.end - entry.begin);
    expected = entry.end;
  }
  return expected;
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

SafetensorsLayout parse_safetensors(std::string_view file, const std::string& where) {
  const std::string_view header = checked_header(file, where);
  const Json table = parse_json(header, concat(where, ": header"));

  SafetensorsLayout layout;
  std::vector<Entry> entries;
  for (const auto& [name, value] : table.get_ref<const Json::object_t&>()) {
    if (name == "__metadata__") {
      layout.metadata = read_metadata(value, where);
    } else {
      entries.push_back(read_entry(name, value, where));
    }
  }
  const uint64_t data_bytes = check_spans(entries, where);
  const uint64_t data_start = kLengthBytes + header.size();
  const uint64_t expected = data_start + data_bytes;
  HEDGEROW_CHECK(expected >= data_start, where,
                 ": overflow: the tensors' bytes do not fit 64 bits");
  HEDGEROW_CHECK(file.size() >= expected, where, ": incomplete file: the header describes ",
                 expected, " bytes; the file has ", file.size());
  HEDGEROW_CHECK(file.size() == expected, where, ": incomplete header: it describes ", expected,
                 " bytes and leaves the last ", file.size() - expected, " of the file's ",
                 file.size(), " unnamed");

  for (Entry& entry : entries) {
    TensorView view{entry.dtype, std::move(entry.shape), file.data() + data_start + entry.begin,
                    static_cast<int64_t>(entry.end - entry.begin)};
    layout.tensors.emplace(std::move(entry.name), std::move(view));
  }
  return layout;
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile opened;
  opened.file_ = MappedFile::open(path);
  opened.layout_ = parse_safetensors(opened.file_->bytes(), path);
  return opened;
}

int64_t tensor_bytes(const TensorSpec& spec) {
  return checked_bytes("write safetensors", spec.name, spec.dtype, spec.shape);
}

}  // namespace hedgerow::formats
