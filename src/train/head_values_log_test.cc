#include "train/head_values_log.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <memory>

#include "base/atomic_file.h"
#include "hedgerow/error.h"

namespace hedgerow::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kHeads = 3;

class HeadValuesLogTest : public ::testing::Test {
 protected:
  HeadValuesLogTest()
      : path_((fs::temp_directory_path() / concat("hedgerow_head_values_", ::getpid())).string()) {}
  void SetUp() override { fs::remove(path_); }
  void TearDown() override { fs::remove(path_); }

  // Two layers: softmax, then the kind.
  static std::shared_ptr<models::Encoder> encoder(
      const std::string& kind, const std::map<std::string, nn::OptionValue>& options = {}) {
    models::EncoderConfig c;
    c.architecture = "bert";
    c.vocab_size = 8;
    c.hidden_size = 6;
    c.num_layers = 2;
    c.num_heads = kHeads;
    c.intermediate_size = 6;
    c.max_positions = 8;
    c.type_vocab_size = 1;
    auto model = std::make_shared<models::Encoder>(c);
    nn::Attention& attention = model->attention(1);
    attention.set_mixer(nn::make_mixer(kind, attention.shape().layout, options));
    return model;
  }

  // alpha = 1 + sigmoid(raw)
  static void set_raw(models::Encoder& model, double raw) {
    const at::NoGradGuard no_grad;
    model.attention(1).mixer().named_parameters()["alpha_raw"].fill_(raw);
  }

  std::string text() const { return fs::exists(path_) ? read_file(path_) : ""; }

  std::string path_;
};

std::string line(const std::string& stage, int64_t step, const std::string& alpha) {
  return concat("{\"stage\":\"", stage, "\",\"step\":", step,
                ",\"head_values\":{\"alpha\":[[null,null,null],[", alpha, ",", alpha, ",", alpha,
                "]]}}\n");
}

TEST_F(HeadValuesLogTest, WritesWhatMoves) {
  auto model = encoder("entmax", {{"start", std::string("1.25")}});
  HeadValuesLog log(path_, *model, "distil", 0);
  EXPECT_FALSE(fs::exists(path_));
  log.write(0);
  log.write(5);
  set_raw(*model, 0);
  log.write(10);
  set_raw(*model, 1e-8);  // nothing that 6 digits show
  log.write(15);
  EXPECT_EQ(text(), line("distil", 0, "1.25") + line("distil", 10, "1.5"));
}

TEST_F(HeadValuesLogTest, WritesFixedValuesOnceAndNothingWithoutValues) {
  for (int stage = 0; stage < 2; ++stage) {
    auto none = encoder("hedgehog");
    HeadValuesLog(path_, *none, concat("stage", stage), 0).write(0);
    EXPECT_FALSE(fs::exists(path_));
  }
  for (int stage = 0; stage < 2; ++stage) {
    auto fixed = encoder("entmax", {{"alpha", std::string("2")}});
    HeadValuesLog log(path_, *fixed, concat("stage", stage), 0);
    log.write(0);
    log.write(1);
  }
  EXPECT_EQ(text(), line("stage0", 0, "2.0"));
}

TEST_F(HeadValuesLogTest, WritesOnlyTheNamesThatMove) {
  auto model = encoder("entmax", {{"alpha", std::string("1.5")}, {"length_scale", true}});
  HeadValuesLog log(path_, *model, "train", 0);
  log.write(0);
  const std::string start = text();
  for (const char* name : {"alpha", "scale_delta", "scale_beta", "scale_gamma"})
    EXPECT_NE(start.find(name), std::string::npos) << name;
  {
    const at::NoGradGuard no_grad;
    model->attention(1).mixer().named_parameters()["scale_beta"].fill_(0.5);
  }
  log.write(1);
  EXPECT_EQ(text().substr(start.size()),
            "{\"stage\":\"train\",\"step\":1,\"head_values\":{\"scale_beta\":"
            "[[null,null,null],[0.5,0.5,0.5]]}}\n");
}

TEST_F(HeadValuesLogTest, ResumedRunForgetsWhatCameAfterItsCheckpoint) {
  const std::string first = line("distil", 0, "1.25") + line("distil", 10, "1.5");
  const std::string second = line("recover", 10, "1.625") + line("recover", 20, "1.75");
  const auto resumed = [&](const char* stage, int64_t steps_done) {
    write_file_atomically(path_, first + second + "{\"stage\":\"rec");  // torn
    auto model = encoder("entmax");
    set_raw(*model, std::log(3.0));  // 1.75
    HeadValuesLog(path_, *model, stage, steps_done).write(30);
    return text();
  };
  EXPECT_EQ(resumed("recover", 25), first + second) << "the last line's values stand";
  EXPECT_EQ(resumed("recover", 15),
            first + line("recover", 10, "1.625") + line("recover", 30, "1.75"));
  EXPECT_EQ(resumed("recover", 0), first + line("recover", 30, "1.75"));
  EXPECT_EQ(resumed("distil", 5), line("distil", 0, "1.25") + line("distil", 30, "1.75"));
  EXPECT_EQ(resumed("other", 0), first + second);
}

TEST_F(HeadValuesLogTest, RefusesALineThatIsNoneOfIts) {
  auto model = encoder("entmax");
  for (const char* wrong : {"{\"step\":1}\n", "not json\n", "{\"stage\":\"a\",\"step\":1}\n"}) {
    write_file_atomically(path_, wrong);
    EXPECT_THROW(HeadValuesLog(path_, *model, "a", 1), Error) << wrong;
  }
}

}  // namespace
}  // namespace hedgerow::train
