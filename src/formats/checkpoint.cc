#include "formats/checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "formats/json.h"
#include "hedgerow/error.h"

namespace hedgerow::formats {
namespace {

namespace fs = std::filesystem;

// shard file -> names of its tensors
using ShardTable = std::map<std::string, std::vector<std::string>>;

ShardTable read_index(const std::string& path) {
  const Json index = read_json_file(path);
  HEDGEROW_CHECK(index.is_object(), path, ": the index must be an object; got ", kind_name(index));
  const Json* weight_map = find_member(index, "weight_map");
  HEDGEROW_CHECK(weight_map != nullptr && weight_map->is_object(), path,
                 ": the index needs an object \"weight_map\"; got ",
                 weight_map == nullptr ? "none" : kind_name(*weight_map));
  ShardTable shards;
  for (const auto& [name, file] : weight_map->get_ref<const Json::object_t&>()) {
    HEDGEROW_CHECK(file.is_string(), path, ": weight_map must give a file name for ", quote(name),
                   "; got ", excerpt(file));
    const auto& shard = file.get_ref<const std::string&>();
    // A shard lies in the folder itself: no way out of it by "../" or an absolute path.
    HEDGEROW_CHECK(!shard.empty() && shard != "." && shard != ".." &&
                       shard.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos,
                   path, ": weight_map must name files of the folder; got ", quote(shard), " for ",
                   quote(name));
    shards[shard].push_back(name);
  }
  return shards;
}

std::string join(const std::vector<std::string>& items) {
  constexpr size_t kMaxShown = 20;
  std::string text;
  for (size_t i = 0; i < std::min(items.size(), kMaxShown); ++i)
    text += (i == 0 ? "" : ", ") + items[i];
  if (items.size() > kMaxShown) text += concat(", ... (", items.size(), " in all)");
  return text;
}

void refuse_missing_shards(const fs::path& folder, const ShardTable& shards) {
  std::vector<std::string> missing;
  std::error_code ignored;
  for (const auto& [shard, names] : shards)
    if (!fs::exists(folder / shard, ignored)) missing.push_back(shard);
  HEDGEROW_CHECK(missing.empty(), (folder / kIndexName).string(),
                 ": every shard of the index must be in the folder; missing ", join(missing));
}

// The weight files of other formats, to say why a folder cannot be read.
std::string other_weights(const fs::path& folder) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto& item : fs::directory_iterator(folder, ignored)) {
    const std::string extension = item.path().extension().string();
    for (const char* other :
         {".bin", ".pt", ".pth", ".ckpt", ".h5", ".gguf", ".msgpack", ".onnx", ".safetensors"})
      if (extension == other) found.push_back(item.path().filename().string());
  }
  std::sort(found.begin(), found.end());
  return found.empty() ? "" : concat("; it has ", join(found));
}

}  // namespace

Checkpoint Checkpoint::open(const std::string& path) {
  const fs::path root(path);
  std::error_code ignored;
  HEDGEROW_CHECK(fs::exists(root, ignored), "model: no such file or folder; got ", path);

  Checkpoint checkpoint;
  const auto read = [&checkpoint](const std::string& file) {
    SafetensorsFile opened = SafetensorsFile::open(file);
    checkpoint.files_.push_back(file);
    checkpoint.mappings_.push_back(opened.mapping());
    for (const auto& item : opened.metadata()) checkpoint.metadata_.insert(item);
    return opened;
  };
  if (!fs::is_directory(root, ignored)) {
    checkpoint.tensors_ = read(path).tensors();
    return checkpoint;
  }
  if (!fs::exists(root / kIndexName, ignored)) {
    HEDGEROW_CHECK(fs::exists(root / kWeightsName, ignored), "model: folder ", path, " needs ",
                   kWeightsName, " or ", kIndexName, other_weights(root));
    checkpoint.tensors_ = read((root / kWeightsName).string()).tensors();
    return checkpoint;
  }

  const ShardTable shards = read_index((root / kIndexName).string());
  refuse_missing_shards(root, shards);
  std::vector<std::string> misplaced;
  for (const auto& [shard, names] : shards) {
    const SafetensorsFile file = read((root / shard).string());
    for (const std::string& name : names) {
      const auto found = file.tensors().find(name);
      if (found == file.tensors().end()) {
        misplaced.push_back(name + " (" + shard + ")");
      } else {
        checkpoint.tensors_.emplace(name, found->second);
      }
    }
  }
  HEDGEROW_CHECK(
      misplaced.empty(), (root / kIndexName).string(),
      ": every tensor must be in the shard that the index names; not there: ", join(misplaced));
  return checkpoint;
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

void write_checkpoint(const std::string& folder, std::vector<TensorSpec> specs,
                      const Metadata& metadata, int64_t max_shard_bytes,
                      const std::function<const void*(const TensorSpec&)>& bytes) {
  HEDGEROW_CHECK(max_shard_bytes > 0, "write checkpoint: max_shard_bytes must be > 0; got ",
                 max_shard_bytes);
  std::sort(specs.begin(), specs.end(),
            [](const TensorSpec& a, const TensorSpec& b) { return a.name < b.name; });
  std::vector<std::vector<TensorSpec>> shards(1);
  int64_t total = 0;
  int64_t current = 0;
  for (TensorSpec& spec : specs) {
    const int64_t size = tensor_bytes(spec);
    if (current > 0 && current + size > max_shard_bytes) {
      shards.emplace_back();
      current = 0;
    }
    current += size;
    total += size;
    shards.back().push_back(std::move(spec));
  }
  const fs::path root(folder);
  if (shards.size() == 1) {
    write_safetensors((root / kWeightsName).string(), std::move(shards[0]), metadata, bytes);
    return;
  }
  Json weight_map = Json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
    for (const TensorSpec& spec : shards[i])
      weight_map.get_ref<Json::object_t&>().emplace_back(spec.name, name);
    write_safetensors((root / name).string(), std::move(shards[i]), metadata, bytes);
  }
  Json index = Json::object();
  index["metadata"] = {{"total_size", total}};
  index["weight_map"] = std::move(weight_map);
  write_file_atomically((root / kIndexName).string(), dump_json(index, 2) + "\n");
}

}  // namespace hedgerow::formats
