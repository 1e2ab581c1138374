#include "formats/safetensors.h"

#include <cstring>

#include "base/atomic_file.h"
#include "formats/test_files.h"

namespace hedgerow::formats {
namespace {

using Strings = std::vector<std::string>;

struct Fault {
  const char* name;
  std::string bytes;
  Strings words;
};

const char kTwo[] = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                    R"("b":{"dtype":"I64","shape":[4],"data_offsets":[24,56]}})";

std::string one(const std::string& body, const std::string& data = std::string(8, '\0')) {
  return raw_file("{\"t.one\":{" + body + "}}", data);
}

std::vector<Fault> faults() {
  const std::string good = raw_file(kTwo, std::string(56, '\0'));
  return {
      {"empty file", "", {"header too small", "got 0"}},
      {"seven bytes", std::string("\2\0\0\0\0\0\0", 7), {"header too small", "got 7"}},
      {"length above the limit",
       raw_file("{}", "", 100'000'001),
       {"header too large", "100000001"}},
      {"length of all ones",
       std::string(8, '\xff') + "{}",
       {"header too large", "18446744073709551615"}},
      {"length beyond the file",
       raw_file("{}", "", 1000),
       {"longer than the file", "1000", "10 bytes"}},
      {"length one beyond the file", raw_file("{}", "", 3), {"longer than the file"}},
      {"empty header", raw_file(""), {"start with '{'"}},
      {"array", raw_file("[\"a\"]"), {"start with '{'", "["}},
      {"leading space", raw_file(" {}"), {"start with '{'"}},
      {"not UTF-8", raw_file("{\"\xff\xfe\":{}}"), {"UTF-8"}},
      {"two documents", raw_file("{},\"x\":{}}"), {"not valid JSON"}},
      {"JSON cut", raw_file("{\"a\":{\"dtype\":\"F32\",\"sh"), {"not valid JSON"}},
      {"trailing comma", raw_file("{\"a\":1,}"), {"not valid JSON"}},
      {"name twice",
       raw_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                "12"),
       {"twice", "\"a\""}},
      {"zero bytes behind the JSON", raw_file(std::string("{}\0\0", 4)), {"not valid JSON"}},
      {"entry no object", raw_file("{\"t.one\":3}"), {"t.one", "object"}},
      {"unknown dtype",
       one(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])"),
       {"t.one", "dtype", "F31"}},
      {"dtype a number", one(R"("dtype":32,"shape":[2],"data_offsets":[0,8])"), {"t.one", "dtype"}},
      {"no dtype", one(R"("shape":[2],"data_offsets":[0,8])"), {"t.one", "dtype"}},
      {"no shape", one(R"("dtype":"F32","data_offsets":[0,8])"), {"t.one", "shape"}},
      {"no offsets", one(R"("dtype":"F32","shape":[2])"), {"t.one", "data_offsets"}},
      {"shape a number",
       one(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"),
       {"t.one", "shape"}},
      {"negative dimension",
       one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"),
       {"t.one", "shape", "-2"}},
      {"fractional dimension",
       one(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"),
       {"t.one", "shape"}},
      {"one offset",
       one(R"("dtype":"F32","shape":[2],"data_offsets":[0])"),
       {"t.one", "data_offsets"}},
      {"three offsets",
       one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"),
       {"t.one", "data_offsets"}},
      {"negative offset",
       one(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])"),
       {"t.one", "data_offsets"}},
      {"metadata a number",
       raw_file(R"({"__metadata__":{"epoch":3}})"),
       {"__metadata__", "epoch", "strings"}},
      {"metadata no object", raw_file(R"({"__metadata__":"x"})"), {"__metadata__"}},
      {"shape larger than its bytes",
       one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"),
       {"t.one", "12", "8"}},
      {"shape smaller than its bytes",
       one(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])"),
       {"t.one", "4", "8"}},
      {"overlap",
       raw_file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                R"("bee":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                std::string(12, '\0')),
       {"bee", "overlap"}},
      {"hole",
       raw_file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("bee":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                std::string(12, '\0')),
       {"bee", "unused"}},
      {"hole at the front",
       one(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"),
       {"t.one", "unused"}},
      {"end before begin",
       one(R"("dtype":"F32","shape":[1],"data_offsets":[8,4])"),
       {"t.one", "offsets", "end"}},
      {"truncated",
       good.substr(0, good.size() - 5),
       {"incomplete", std::to_string(good.size()), std::to_string(good.size() - 5)}},
      {"trailing bytes", good + "abc", {"incomplete", "3"}},
      {"product beyond 63 bits",
       one(R"("dtype":"F32","shape":[8589934592,8589934592],"data_offsets":[0,8])"),
       {"overflow", "t.one"}},
      {"dimension beyond 63 bits",
       one(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,8])"),
       {"overflow", "t.one"}},
      {"offset beyond the file",
       one(R"("dtype":"U8","shape":[9000000000000000000],"data_offsets":[0,9000000000000000000])"),
       {"overflow", "t.one"}},
      {"packed type that ends inside a byte",
       one(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])", "x"),
       {"t.one", "F4"}},
      {"Git-LFS pointer",
       "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n",
       {"git-lfs"}},
      {"zip", "PK\x03\x04" + std::string(60, '\0'), {"zip"}},
      {"zip of torch", std::string("PK\x03\x04\0\0\x08\x08\0\0\0\0", 12), {"zip"}},
      {"pickle 2", std::string("\x80\x02}q\0.", 6) + std::string(20, '\0'), {"pickle"}},
      {"pickle 4, very short", std::string("\x80\x04N.", 4), {"pickle"}},
      {"GGUF", "GGUF" + std::string(60, '\1'), {"GGUF"}},
      {"NumPy", "\x93NUMPY" + std::string(60, '\1'), {"NumPy"}},
      {"HTML", "<!DOCTYPE html><html></html>", {"HTML"}},
      {"gzip", "\x1f\x8b" + std::string(60, '\1'), {"gzip"}},
  };
}

TEST(Safetensors, EveryFaultHasItsText) {
  std::map<std::string, std::string> seen;
  for (const Fault& f : faults()) {
    SCOPED_TRACE(f.name);
    const std::string message = error_of([&] { parse_safetensors(f.bytes, "model.safetensors"); });
    EXPECT_EQ(message.rfind("model.safetensors: ", 0), 0u) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    for (const std::string& word : f.words) EXPECT_MENTIONS(message, word);
  }
}

TEST(Safetensors, EveryCutOfAGoodFileIsRefused) {
  const std::string good = raw_file(kTwo, std::string(56, '\0'));
  EXPECT_NO_THROW(parse_safetensors(good, "x"));
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_THROW(parse_safetensors(good.substr(0, size), "x"), Error) << size;
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  std::string data(56, '\0');
  const float value = 2.5f;
  std::memcpy(data.data() + 4, &value, sizeof value);
  const std::string file =
      raw_file(R"({"__metadata__":{"format":"pt"},)" + std::string(kTwo + 1) + "   ", data);
  const SafetensorsLayout layout = parse_safetensors(file, "x");
  EXPECT_EQ(layout.metadata, (Metadata{{"format", "pt"}}));
  ASSERT_EQ(layout.tensors.size(), 2u);
  const TensorView& a = layout.tensors.at("a");
  EXPECT_EQ(a.dtype, Dtype::kF32);
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(a.num_bytes, 24);
  float read;
  std::memcpy(&read, a.data + 4, sizeof read);
  EXPECT_EQ(read, value);
  EXPECT_EQ(layout.tensors.at("b").data, a.data + 24);
}

TEST(Safetensors, GoodOddities) {
  EXPECT_TRUE(parse_safetensors(raw_file("{}"), "x").tensors.empty());
  const auto scalar = parse_safetensors(
      raw_file(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", "1234"), "x");
  EXPECT_TRUE(scalar.tensors.at("s").shape.empty());
  // Empty tensors may stand anywhere that is a border.
  const auto empty = parse_safetensors(
      raw_file(
          R"({"z":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]},"y":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
          R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          "1234"),
      "x");
  EXPECT_EQ(empty.tensors.at("z").num_bytes, 0);
  // A header of 640 bytes begins like a pickle and is none.
  const std::string padded = "{}" + std::string(638, ' ');
  EXPECT_EQ(raw_file(padded).substr(0, 2), std::string("\x80\x02"));
  EXPECT_NO_THROW(parse_safetensors(raw_file(padded), "x"));
}

class SafetensorsFileTest : public FolderTest {};

TEST_F(SafetensorsFileTest, WritesWhatItReads) {
  const std::vector<float> floats = {1, 2, 3, 4, 5, 6};
  const std::vector<uint8_t> bytes = {7, 8, 9};
  const std::vector<int64_t> longs = {-1};
  const std::vector<TensorSpec> specs = {{"bytes", Dtype::kU8, {3}},
                                         {"z", Dtype::kF32, {2, 3}},
                                         {"none", Dtype::kF32, {0, 5}},
                                         {"long", Dtype::kI64, {}}};
  const auto data = [&](const TensorSpec& spec) -> const void* {
    return spec.name == "bytes" ? static_cast<const void*>(bytes.data())
           : spec.name == "z"   ? static_cast<const void*>(floats.data())
                                : static_cast<const void*>(longs.data());
  };
  write_safetensors(path("a.safetensors"), specs, {{"format", "pt"}, {"a\"b", "\n"}}, data);
  std::vector<TensorSpec> reversed(specs.rbegin(), specs.rend());
  write_safetensors(path("b.safetensors"), reversed, {{"a\"b", "\n"}, {"format", "pt"}}, data);
  EXPECT_EQ(read_file(path("a.safetensors")), read_file(path("b.safetensors")));

  const SafetensorsFile file = SafetensorsFile::open(path("a.safetensors"));
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}, {"a\"b", "\n"}}));
  ASSERT_EQ(file.tensors().size(), 4u);
  for (const TensorSpec& spec : specs) {
    const TensorView& view = file.tensors().at(spec.name);
    EXPECT_EQ(view.dtype, spec.dtype);
    EXPECT_EQ(view.shape, spec.shape);
    EXPECT_EQ(std::memcmp(view.data, data(spec), static_cast<size_t>(view.num_bytes)), 0);
    // Aligned to its elements: the mapping begins on a page.
    if (view.num_bytes == 0) continue;
    EXPECT_EQ(
        reinterpret_cast<uintptr_t>(view.data) % static_cast<size_t>(dtype_bits(view.dtype) / 8),
        0u);
  }
}

TEST_F(SafetensorsFileTest, AnUnfinishedFileDoesNotAppear) {
  put("a.safetensors", "old");
  {
    SafetensorsWriter writer(path("a.safetensors"), {{"x", Dtype::kF32, {2}}}, {});
    const float value = 1;
    writer.append(&value, 4);
    EXPECT_THROW(writer.commit(), Error);  // half of it is missing
    EXPECT_THROW(writer.append("too much", 8), Error);
  }
  EXPECT_EQ(read_file(path("a.safetensors")), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(SafetensorsFileTest, WriterRefusesNonsense) {
  const auto open = [&](std::vector<TensorSpec> specs) {
    SafetensorsWriter(path("a"), std::move(specs), {});
  };
  EXPECT_MENTIONS(error_of([&] {
                    open({{"x", Dtype::kF32, {2}}, {"x", Dtype::kU8, {1}}});
                  }),
                  "twice");
  EXPECT_MENTIONS(error_of([&] { open({{"x", Dtype::kF32, {-2}}}); }), "negative");
  EXPECT_MENTIONS(error_of([&] {
                    open({{"x", Dtype::kF32, {int64_t{1} << 40, int64_t{1} << 40}}});
                  }),
                  "overflow");
  EXPECT_MENTIONS(error_of([&] { open({{"__metadata__", Dtype::kF32, {1}}}); }), "__metadata__");
  EXPECT_MENTIONS(error_of([&] { open({{"\xff", Dtype::kF32, {1}}}); }), "UTF-8");
  EXPECT_THROW(SafetensorsWriter(path("no/such/folder/a"), {}, {}), Error);
}

TEST_F(SafetensorsFileTest, ErrorsNameThePath) {
  put("bad.safetensors", "1234567");
  EXPECT_MENTIONS(error_of([&] { SafetensorsFile::open(path("bad.safetensors")); }),
                  path("bad.safetensors"));
  EXPECT_MENTIONS(error_of([&] { SafetensorsFile::open(path("none")); }), path("none"));
}

}  // namespace
}  // namespace hedgerow::formats
