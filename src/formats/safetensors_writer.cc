#include <algorithm>
#include <utility>

#include "formats/json.h"
#include "formats/safetensors.h"
#include "hedgerow/error.h"

namespace hedgerow::formats {
namespace {

constexpr size_t kHeaderAlignment = 8;

void sort_and_check_names(std::vector<TensorSpec>& specs) {
  std::sort(specs.begin(), specs.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  std::vector<std::string_view> names;
  for (const TensorSpec& spec : specs) names.push_back(spec.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  HEDGEROW_CHECK(twice == names.end(), "write safetensors: names must differ; got twice ",
                 quote(*twice));
  HEDGEROW_CHECK(!std::binary_search(names.begin(), names.end(), std::string_view("__metadata__")),
                 "write safetensors: no tensor may be called __metadata__");
}

std::string header_text(const std::vector<TensorSpec>& specs, const Metadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) {
    Json texts = Json::object();
    for (const auto& [key, text] : metadata) texts[key] = text;
    header["__metadata__"] = std::move(texts);
  }
  auto& members = header.get_ref<Json::object_t&>();
  int64_t offset = 0;
  for (const TensorSpec& spec : specs) {
    const int64_t end = offset + tensor_bytes(spec);
    Json entry = Json::object();
    entry["dtype"] = dtype_name(spec.dtype);
    entry["shape"] = spec.shape;
    entry["data_offsets"] = {offset, end};
    members.emplace_back(spec.name, std::move(entry));
    offset = end;
  }
  std::string text = dump_json(header);
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  return text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorSpec> specs,
                                     const Metadata& metadata)
    : file_(path), path_(path), specs_(std::move(specs)) {
  sort_and_check_names(specs_);
  for (const TensorSpec& spec : specs_) remaining_ += tensor_bytes(spec);
  const std::string header = header_text(specs_, metadata);
  char length[8];
  for (int i = 0; i < 8; ++i)
    length[i] = static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i));
  file_.write(length, sizeof length);
  file_.write(header);
}

void SafetensorsWriter::append(const void* data, int64_t num_bytes) {
  HEDGEROW_CHECK(num_bytes >= 0 && num_bytes <= remaining_, "write safetensors: ", path_,
                 " has room for ", remaining_, " more bytes; got ", num_bytes);
  if (num_bytes > 0) file_.write(data, num_bytes);
  remaining_ -= num_bytes;
}

void SafetensorsWriter::commit() {
  HEDGEROW_CHECK(remaining_ == 0, "write safetensors: ", path_, " needs ", remaining_,
                 " more bytes before it is complete");
  file_.commit();
}

void write_safetensors(const std::string& path, std::vector<TensorSpec> specs,
                       const Metadata& metadata,
                       const std::function<const void*(const TensorSpec&)>& bytes) {
  SafetensorsWriter writer(path, std::move(specs), metadata);
  for (const TensorSpec& spec : writer.order()) writer.append(bytes(spec), tensor_bytes(spec));
  writer.commit();
}

}  // namespace hedgerow::formats
