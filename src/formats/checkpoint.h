// The tensors of a model: one safetensors file, or shards and their index, seen as one table.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors.h"

namespace hedgerow::formats {

inline constexpr const char* kWeightsName = "model.safetensors";
inline constexpr const char* kIndexName = "model.safetensors.index.json";

// Views stay valid as long as the object or a copy of its `mappings()` lives.
class Checkpoint {
 public:
  // A folder with model.safetensors.index.json and the shards it names (other weight files beside
  // it are ignored), or with model.safetensors; or the path of one safetensors file. A config.json
  // is not needed. Throws Error that names every missing shard, every tensor that is not in the
  // shard the index names, or what else is wrong with a file.
  static Checkpoint open(const std::string& path);

  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  const TensorView* find(std::string_view name) const;

  // Of the single file, or of all shards together (the first shard's value wins).
  const Metadata& metadata() const { return metadata_; }

  // Paths of the weight files read, in order.
  const std::vector<std::string>& files() const { return files_; }

  const std::vector<std::shared_ptr<const MappedFile>>& mappings() const { return mappings_; }

 private:
  std::map<std::string, TensorView, std::less<>> tensors_;
  Metadata metadata_;
  std::vector<std::string> files_;
  std::vector<std::shared_ptr<const MappedFile>> mappings_;
};

// Writes the tensors into `folder`: model.safetensors when all fit max_shard_bytes, otherwise
// model-0000i-of-0000n.safetensors and, last, the index. The folder must exist; nothing in it is
// removed.
void write_checkpoint(const std::string& folder, std::vector<TensorSpec> specs,
                      const Metadata& metadata, int64_t max_shard_bytes,
                      const std::function<const void*(const TensorSpec&)>& bytes);

}  // namespace hedgerow::formats
