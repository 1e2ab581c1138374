#include "formats/checkpoint.h"

#include <cstring>

#include "base/atomic_file.h"
#include "formats/json.h"
#include "formats/test_files.h"

namespace hedgerow::formats {
namespace {

class CheckpointTest : public FolderTest {
 protected:
  // A file of float vectors, each filled with its length.
  void put_tensors(const std::string& name,
                   const std::vector<std::pair<std::string, int64_t>>& tensors,
                   const Metadata& metadata = {}) const {
    std::vector<TensorSpec> specs;
    for (const auto& [tensor, size] : tensors) specs.push_back({tensor, Dtype::kF32, {size}});
    std::vector<float> values;
    write_safetensors(path(name), specs, metadata, [&](const TensorSpec& spec) {
      values.assign(static_cast<size_t>(spec.shape[0]), static_cast<float>(spec.shape[0]));
      return values.data();
    });
  }
  void put_index(const std::string& weight_map) const {
    put(kIndexName, "{\"metadata\":{\"total_size\":0},\"weight_map\":" + weight_map + "}");
  }
  std::string fault() const {
    return error_of([&] { Checkpoint::open(folder_.string()); });
  }
};

TEST_F(CheckpointTest, SingleFileAndFolder) {
  put_tensors(kWeightsName, {{"a", 2}, {"b", 3}}, {{"format", "pt"}});
  for (const std::string& where : {folder_.string(), path(kWeightsName)}) {
    const Checkpoint checkpoint = Checkpoint::open(where);
    EXPECT_EQ(checkpoint.tensors().size(), 2u);
    ASSERT_NE(checkpoint.find("b"), nullptr);
    EXPECT_EQ(checkpoint.find("b")->shape, (std::vector<int64_t>{3}));
    EXPECT_EQ(checkpoint.find("c"), nullptr);
    EXPECT_EQ(checkpoint.metadata().at("format"), "pt");
    EXPECT_EQ(checkpoint.files(), std::vector<std::string>{path(kWeightsName)});
  }
}

TEST_F(CheckpointTest, TheIndexWinsOverOtherFiles) {
  put_tensors("one.safetensors", {{"x", 2}, {"not in the index", 9}});
  put_tensors("two.safetensors", {{"y", 3}});
  put_tensors(kWeightsName, {{"x", 5}});
  put_tensors("consolidated.safetensors", {{"q", 1}});
  put_index(R"({"x":"one.safetensors","y":"two.safetensors"})");
  const Checkpoint checkpoint = Checkpoint::open(folder_.string());
  EXPECT_EQ(checkpoint.tensors().size(), 2u);
  EXPECT_EQ(checkpoint.find("x")->shape, (std::vector<int64_t>{2}));
  EXPECT_EQ(checkpoint.files().size(), 2u);
  float value;
  std::memcpy(&value, checkpoint.find("y")->data, sizeof value);
  EXPECT_EQ(value, 3.0f);
}

TEST_F(CheckpointTest, ViewsOutliveTheCheckpointWithItsMappings) {
  put_tensors(kWeightsName, {{"a", 2}});
  TensorView view;
  std::vector<std::shared_ptr<const MappedFile>> keep;
  {
    const Checkpoint checkpoint = Checkpoint::open(folder_.string());
    view = *checkpoint.find("a");
    keep = checkpoint.mappings();
  }
  float value;
  std::memcpy(&value, view.data, sizeof value);
  EXPECT_EQ(value, 2.0f);
}

TEST_F(CheckpointTest, NamesEveryMissingShardAndTensor) {
  put_tensors("one.safetensors", {{"x", 2}, {"y", 3}});
  put_index(R"({"x":"one.safetensors","y":"two.safetensors","z":"three.safetensors"})");
  std::string message = fault();
  EXPECT_MENTIONS(message, "two.safetensors");
  EXPECT_MENTIONS(message, "three.safetensors");
  put_tensors("two.safetensors", {{"w", 1}});
  put_tensors("three.safetensors", {{"w", 1}});
  message = fault();
  EXPECT_MENTIONS(message, "y (two.safetensors)");
  EXPECT_MENTIONS(message, "z (three.safetensors)");
  EXPECT_EQ(message.find("x ("), std::string::npos);
}

TEST_F(CheckpointTest, RefusesABadIndex) {
  put_index(R"({"x":"../one.safetensors"})");
  EXPECT_MENTIONS(fault(), "../one.safetensors");
  put_index(R"({"x":"/etc/passwd"})");
  EXPECT_MENTIONS(fault(), "/etc/passwd");
  put_index(R"({"x":".."})");
  EXPECT_MENTIONS(fault(), "\"..\"");
  put_index(R"({"x":3})");
  EXPECT_MENTIONS(fault(), "\"x\"");
  put_index(R"([])");
  EXPECT_MENTIONS(fault(), "weight_map");
  put_index(R"({"x":"a","x":"b"})");
  EXPECT_MENTIONS(fault(), "twice");
  put(kIndexName, "{}");
  EXPECT_MENTIONS(fault(), "weight_map");
  put(kIndexName, "[]");
  EXPECT_MENTIONS(fault(), "object");
}

TEST_F(CheckpointTest, SaysWhatAFolderHasInstead) {
  EXPECT_MENTIONS(error_of([&] { Checkpoint::open(path("nowhere")); }), "nowhere");
  EXPECT_MENTIONS(fault(), kWeightsName);
  put("pytorch_model.bin", "x");
  EXPECT_MENTIONS(fault(), "pytorch_model.bin");
}

TEST_F(CheckpointTest, WritesOneFileOrShards) {
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 10; ++i) specs.push_back({concat("t", i), Dtype::kF32, {100}});
  const std::vector<float> values(100, 1.5f);
  const auto data = [&](const TensorSpec&) -> const void* { return values.data(); };
  write_checkpoint(folder_.string(), specs, {{"format", "pt"}}, 1 << 20, data);
  EXPECT_EQ(Checkpoint::open(folder_.string()).files().size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(path(kIndexName)));

  write_checkpoint(folder_.string(), specs, {{"format", "pt"}}, 1000, data);
  const Checkpoint sharded = Checkpoint::open(folder_.string());
  EXPECT_EQ(sharded.files().size(), 5u);  // two of 400 bytes in each
  EXPECT_EQ(sharded.tensors().size(), 10u);
  EXPECT_EQ(sharded.metadata().at("format"), "pt");
  EXPECT_EQ(read_json_file(path(kIndexName))["metadata"]["total_size"], 4000);
  // A tensor above the limit gets a shard of its own.
  write_checkpoint(folder_.string(), specs, {}, 1, data);
  EXPECT_EQ(Checkpoint::open(folder_.string()).files().size(), 10u);
}

}  // namespace
}  // namespace hedgerow::formats
