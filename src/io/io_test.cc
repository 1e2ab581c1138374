// Tensors from and to files: dtypes, names, one report of all that is wrong.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/atomic_file.h"
#include "hedgerow/error.h"
#include "io/npy.h"
#include "io/tensors.h"

namespace hedgerow::io {
namespace {

namespace fs = std::filesystem;

class Folder : public ::testing::Test {
 protected:
  Folder() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::temp_directory_path() / concat("hedgerow_io_", test->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~Folder() override { fs::remove_all(root_); }

  std::string path(const std::string& name) const { return (root_ / name).string(); }

  std::string load_error(const std::vector<NamedTensor>& stored,
                         const std::vector<NamedTensor>& targets, const LoadRules& rules) const {
    save_tensors(path("model.safetensors"), stored);
    try {
      load_tensors(formats::Checkpoint::open(root_.string()), "model", targets, rules);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  fs::path root_;
};

const LoadRules kPlain{[](const std::string& name) {
                         return TensorSource{{name}, {}};
                       },
                       [](const std::string&) { return false; }};

TEST_F(Folder, EveryDtypeComesBackAsItWas) {
  std::vector<NamedTensor> tensors;
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                                    at::kInt, at::kShort, at::kChar, at::kByte, at::kBool}) {
    tensors.push_back(
        {c10::toString(type), at::tensor({0, 1, 1, 0, 1, 1}, at::kInt).view({2, 3}).to(type)});
  }
  tensors.push_back({"scalar", at::scalar_tensor(2.5)});
  tensors.push_back({"none", at::empty({0, 3})});
  tensors.push_back({"strided", at::arange(6, at::kFloat).view({2, 3}).t()});
  save_tensors(path("all.safetensors"), tensors, {{"made", "here"}});
  const auto file = formats::Checkpoint::open(path("all.safetensors"));
  EXPECT_EQ(file.metadata().at("made"), "here");
  for (const NamedTensor& t : tensors) {
    const at::Tensor back = to_tensor(t.name, *file.find(t.name));
    EXPECT_EQ(back.scalar_type(), t.tensor.scalar_type()) << t.name;
    EXPECT_TRUE(at::equal(back, t.tensor.contiguous())) << t.name;
  }
}

TEST_F(Folder, ConvertsFloatingDtypesIntoTheTargets) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    at::Tensor target = at::zeros({4});
    const at::Tensor stored = at::tensor({1.0, -0.5, 256.0, 0.125}, at::kDouble).to(type);
    EXPECT_EQ(load_error({{"w", stored}}, {{"w", target}}, kPlain), "");
    EXPECT_TRUE(at::equal(target, stored.to(at::kFloat)));
  }
}

TEST_F(Folder, ReportsEverythingAtOnceAndChangesNothing) {
  const at::Tensor good = at::zeros({2});
  const std::string message =
      load_error({{"good", at::ones({2})},
                  {"shape", at::ones({2, 3})},
                  {"whole", at::ones({2}, at::kLong)},
                  {"extra.b", at::ones({1})},
                  {"extra.a", at::ones({1})},
                  {"ignored", at::ones({1})}},
                 {{"good", good},
                  {"gone.1", at::zeros({2})},
                  {"gone.2", at::zeros({2})},
                  {"shape", at::zeros({3, 2})},
                  {"whole", at::zeros({2})}},
                 {kPlain.source, [](const std::string& name) { return name == "ignored"; }});
  EXPECT_EQ(message,
            "model: 2 tensors missing: gone.1, gone.2; 2 tensors unexpected: extra.a, extra.b; 1 "
            "tensor of "
            "another shape than the config gives: shape must be [3, 2], got [2, 3]; 1 tensor not "
            "floating-point (F64, F32, F16, BF16): whole I64");
  EXPECT_TRUE(good.eq(0).all().item<bool>());
}

TEST_F(Folder, OtherNamesAndTies) {
  const LoadRules rules{[](const std::string& name) {
                          return TensorSource{{name, "bert." + name}, {"tied." + name}};
                        },
                        kPlain.may_ignore};
  at::Tensor target = at::zeros({1});
  const at::Tensor one = at::ones({1}), two = at::full({1}, 2.0);
  EXPECT_EQ(load_error({{"bert.w", one}}, {{"w", target}}, rules), "");
  EXPECT_EQ(target.item<float>(), 1);
  EXPECT_EQ(load_error({{"tied.w", two}}, {{"w", target}}, rules),
            "");  // only the tie's other side
  EXPECT_EQ(target.item<float>(), 2);
  EXPECT_EQ(load_error({{"w", one}, {"tied.w", two}}, {{"w", target}}, rules), "");
  EXPECT_EQ(target.item<float>(), 1);
  EXPECT_EQ(load_error({{"w", one}, {"bert.w", two}}, {{"w", target}}, rules),
            "model: 1 tensor stored under two names: w = bert.w");
  EXPECT_EQ(load_error({{"v", one}}, {{"w", target}}, rules),
            "model: 1 tensor missing: w; 1 tensor unexpected: v");
}

TEST_F(Folder, NpyHasNumpysHeader) {
  {
    AtomicFile file(path("a.npy"));
    write_npy(file, at::arange(6, at::kFloat).view({2, 3}));
    file.commit();
  }
  const std::string bytes = read_file(path("a.npy"));
  ASSERT_EQ(bytes.size() % 64, 24u);  // 6 numbers after a header of whole 64 bytes
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_NE(bytes.find("{'descr': '<f4', 'fortran_order': False, 'shape': (2,3,), }"),
            std::string::npos);
  EXPECT_EQ(bytes[bytes.size() - 25], '\n');
  AtomicFile file(path("b.npy"));
  EXPECT_THROW(write_npy(file, at::ones({1}, at::kLong)), Error);
}

}  // namespace
}  // namespace hedgerow::io
