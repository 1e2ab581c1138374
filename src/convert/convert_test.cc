#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "convert/config.h"
#include "convert/corpus.h"
#include "convert/distil.h"
#include "convert/out_folder.h"
#include "convert/recover.h"
#include "hedgerow/error.h"
#include "train/loop.h"

namespace hedgerow::convert {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<models::Encoder> tiny_encoder() {
  models::EncoderConfig c;
  c.architecture = "bert";
  c.vocab_size = 50;
  c.hidden_size = 24;
  c.num_layers = 2;
  c.num_heads = 3;
  c.intermediate_size = 32;
  c.max_positions = 64;
  c.type_vocab_size = 2;
  auto encoder = std::make_shared<models::Encoder>(c);
  at::Generator generator = at::detail::createCPUGenerator(5);
  const at::NoGradGuard no_grad;
  for (auto& parameter : encoder->parameters())
    parameter.copy_(at::randn(parameter.sizes(), generator) * 0.4);
  return encoder;
}

std::shared_ptr<models::Encoder> swapped(const std::string& map) {
  auto encoder = tiny_encoder();
  for (int64_t layer = 0; layer < encoder->num_layers(); ++layer) {
    nn::Attention& attention = encoder->attention(layer);
    attention.set_mixer(nn::make_mixer("hedgehog", attention.shape().layout, {{"map", map}}));
  }
  return encoder;
}

Corpus tiny_corpus() {
  Corpus corpus;
  corpus.prefix = {1};
  corpus.suffix = {2};
  at::Generator generator = at::detail::createCPUGenerator(9);
  for (int64_t i = 0; i < 64; ++i) {
    const at::Tensor ids = at::randint(3, 50, {4 + i % 17}, generator, at::kLong);
    const int64_t* data = ids.const_data_ptr<int64_t>();
    corpus.train_bodies.emplace_back(data, data + ids.numel());
    data::Sequence sequence{{1}, {}};
    sequence.ids.insert(sequence.ids.end(), corpus.train_bodies.back().begin(),
                        corpus.train_bodies.back().end());
    sequence.ids.push_back(2);
    corpus.train.push_back(sequence);
  }
  return corpus;
}

DistilConfig tiny_distil() {
  DistilConfig config;
  config.steps = 60;
  config.tokens = 128;
  config.lengths = {16, 64, 512};  // 512 is beyond the model's positions and left out
  return config;
}

TEST(Distil, LowersTheDivergenceOfEveryMapAndTouchesNothingElse) {
  auto teacher = tiny_encoder();
  const Corpus corpus = tiny_corpus();
  for (const char* map : {"exp", "softmax", "softmax_joint", "elu", "relu"}) {
    auto model = swapped(map);
    const auto objective = distil_objective(*teacher, *model, {0, 1}, corpus, tiny_distil(), 0);
    const double before = objective->step(1000).scalars[0].second;
    train::LoopConfig loop;
    loop.schedule = {train::Schedule::Kind::cosine, 60, 5};
    loop.quiet = true;
    train::run_loop(*objective, loop, nullptr);
    const double after = objective->step(1000).scalars[0].second;
    EXPECT_GE(after, 0) << map;
    EXPECT_LT(after, 0.8 * before) << map;
    for (auto& item : model->named_parameters()) {
      if (item.key().find(".hedgerow.") != std::string::npos) continue;
      EXPECT_TRUE(at::equal(item.value(), teacher->named_parameters()[item.key()])) << item.key();
    }
  }
}

TEST(Distil, StepsDependOnSeedAndIndexAlone) {
  auto teacher = tiny_encoder(), model = swapped("exp");
  const Corpus corpus = tiny_corpus();
  const auto first = distil_objective(*teacher, *model, {0, 1}, corpus, tiny_distil(), 3);
  const auto second = distil_objective(*teacher, *model, {0, 1}, corpus, tiny_distil(), 3);
  first->parameter_groups();
  for (const int64_t index : {5, 0, 5})
    EXPECT_EQ(first->step(index).loss, second->step(index).loss);
  EXPECT_NE(first->step(0).loss, first->step(1).loss);
  const auto other = distil_objective(*teacher, *model, {0, 1}, corpus, tiny_distil(), 4);
  EXPECT_NE(first->step(0).loss, other->step(0).loss);
}

TEST(Distil, GradientsOfALayerDoNotDependOnTheOthers) {
  auto teacher = tiny_encoder(), model = swapped("softmax");
  const Corpus corpus = tiny_corpus();
  const auto both = distil_objective(*teacher, *model, {0, 1}, corpus, tiny_distil(), 3);
  both->parameter_groups();
  both->step(2);
  const at::Tensor gradient = model->attention(1).mixer().named_parameters()["wq"].grad().clone();
  model = swapped("softmax");
  const auto one = distil_objective(*teacher, *model, {1}, corpus, tiny_distil(), 3);
  one->parameter_groups();
  one->step(2);
  EXPECT_TRUE(at::equal(model->attention(1).mixer().named_parameters()["wq"].grad(), gradient));
  EXPECT_FALSE(model->attention(0).mixer().named_parameters()["wq"].grad().defined());
}

TEST(Recover, LowersTheLossAndIsZeroForTheTeacherItself) {
  models::LoadedModel teacher, same, model;
  teacher.encoder = tiny_encoder();
  same.encoder = tiny_encoder();
  model.encoder = swapped("softmax");
  const Corpus corpus = tiny_corpus();
  RecoverConfig config;
  config.batch = 8;
  config.lr = 1e-3;
  const auto itself = recover_objective(teacher, same, corpus, config, 0);
  itself->parameter_groups();
  EXPECT_NEAR(itself->step(0).loss, 0, 1e-5);
  const auto objective = recover_objective(teacher, model, corpus, config, 0);
  const double before = objective->step(3).loss;
  train::LoopConfig loop;
  loop.schedule = {train::Schedule::Kind::cosine, 60, 5};
  loop.max_grad_norm = 1;
  loop.quiet = true;
  train::run_loop(*objective, loop, nullptr);
  EXPECT_LT(objective->step(3).loss, 0.5 * before);
}

TEST(Recover, RecutTextsComeWithTheSecondPass) {
  models::LoadedModel teacher, model;
  teacher.encoder = tiny_encoder();
  model.encoder = swapped("softmax");
  const Corpus corpus = tiny_corpus();
  RecoverConfig config;
  config.batch = 16;
  const int64_t per_pass = std::ssize(corpus.train) / config.batch;
  const auto loss = [&](double recut, int64_t step) {
    config.recut = recut;
    const auto objective = recover_objective(teacher, model, corpus, config, 0);
    objective->parameter_groups();
    const train::StepResult result = objective->step(step);
    return std::pair(result.loss, result.num_tokens);
  };
  EXPECT_EQ(loss(1, per_pass - 1), loss(0, per_pass - 1));
  const auto [texts, num_tokens] = loss(0, per_pass);
  const auto [half, num_half] = loss(0.5, per_pass);
  const auto [all, num_all] = loss(1, per_pass);
  EXPECT_NE(texts, half);
  EXPECT_NE(texts, all);
  EXPECT_NE(half, all);
  EXPECT_EQ(num_half, num_tokens) << "each has as many tokens as the text it replaces";
  EXPECT_EQ(num_all, num_tokens);
  EXPECT_EQ(loss(0.5, per_pass).first, half) << "depends on seed and step alone";
  EXPECT_NE(loss(1, per_pass + 1).first, all);
}

TEST(Corpus, RandomWindowsAreRunningTextFromEverywhere) {
  Corpus corpus;
  corpus.prefix = {1};
  corpus.suffix = {2, 3};
  corpus.train_bodies = {{10, 11, 12}, {13}, {14, 15, 16, 17}};
  const RandomWindows windows(corpus);
  for (const int64_t length : {4, 8, 30}) {  // the last goes round more than once
    std::vector<int64_t> starts(8);
    for (uint64_t key = 0; key < 800; ++key) {
      const std::vector<int64_t> ids = windows.window(length, key).ids;
      ASSERT_EQ(std::ssize(ids), length);
      EXPECT_EQ(ids.front(), 1);
      EXPECT_EQ(ids[length - 2], 2);
      EXPECT_EQ(ids[length - 1], 3);
      for (int64_t i = 2; i < length - 2; ++i) EXPECT_EQ(ids[i], 10 + (ids[1] - 10 + i - 1) % 8);
      ++starts.at(ids[1] - 10);
    }
    // 100 each wanted; six standard deviations are 56
    for (const int64_t count : starts) EXPECT_NEAR(count, 100, 56);
  }
}

TEST(Recover, LoraTrainsNothingElse) {
  models::LoadedModel teacher, model;
  teacher.encoder = tiny_encoder();
  model.encoder = swapped("softmax");
  model.encoder->add_lora(2, 4.0);
  const Corpus corpus = tiny_corpus();
  RecoverConfig config;
  config.lora_rank = 2;
  const auto objective = recover_objective(teacher, model, corpus, config, 0);
  int64_t low_rank = 0;
  for (const train::ParameterGroup& group : objective->parameter_groups())
    for (const train::NamedParameter& p : group.parameters) {
      const bool lora = p.name.find(".lora_") != std::string::npos;
      EXPECT_TRUE(lora || p.name.find(".hedgerow.") != std::string::npos) << p.name;
      low_rank += lora ? 1 : 0;
    }
  EXPECT_EQ(low_rank, 2 * 4 * 2) << "two layers, four projections, two factors";
}

TEST(Recover, MixersAloneChangeNothingElse) {
  models::LoadedModel teacher, model;
  teacher.encoder = tiny_encoder();
  model.encoder = swapped("softmax");
  const Corpus corpus = tiny_corpus();
  RecoverConfig config;
  config.mixers_only = true;
  config.mixer_lr = 1e-2;
  const auto objective = recover_objective(teacher, model, corpus, config, 0);
  const double before = objective->step(3).loss;
  train::LoopConfig loop;
  loop.schedule = {train::Schedule::Kind::cosine, 40, 5};
  loop.quiet = true;
  train::run_loop(*objective, loop, nullptr);
  EXPECT_LT(objective->step(3).loss, before);
  for (auto& item : model.encoder->named_parameters()) {
    if (item.key().find(".hedgerow.") != std::string::npos) continue;
    EXPECT_TRUE(at::equal(item.value(), teacher.encoder->named_parameters()[item.key()]))
        << item.key();
  }
}

class OutFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / concat("hedgerow_out_folder_test_", ::getpid());
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void put(const char* name) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << "x";
  }
  std::string out() const { return (root_ / "out").string(); }
  fs::path root_;
};

TEST_F(OutFolderTest, StartsFinishesAndLeavesNoTraining) {
  OutFolder folder(out() + "/", false, false, {});
  EXPECT_FALSE(fs::exists(out() + ".partial")) << "nothing is made before prepare()";
  folder.prepare();
  put("out.partial/summary.json");
  put("out.partial/training/last/state.safetensors");
  folder.finish();
  EXPECT_TRUE(fs::exists(out() + "/summary.json"));
  EXPECT_FALSE(fs::exists(out() + "/training"));
  EXPECT_FALSE(fs::exists(out() + ".partial"));
  EXPECT_EQ(OutFolder(out(), true, false, {}).state(), OutFolder::State::complete);
}

TEST_F(OutFolderTest, ExistingOnesAreRefusedContinuedOrReplaced) {
  put("out/old.txt");
  EXPECT_THROW(OutFolder(out(), false, false, {}), Error);
  put("out.partial/half.txt");
  EXPECT_THROW(OutFolder(out(), true, false, {}), Error) << "OUT is no complete run";
  OutFolder forced(out(), false, true, {});
  {
    OutFolder resumed(out(), true, true, {});
    EXPECT_EQ(resumed.state(), OutFolder::State::resumed);
    resumed.prepare();
    EXPECT_THROW(forced.prepare(), Error) << "another run holds the folder";
    EXPECT_TRUE(fs::exists(out() + ".partial/half.txt"));
  }
  forced.prepare();
  EXPECT_FALSE(fs::exists(out() + ".partial/half.txt"));
  EXPECT_TRUE(fs::exists(out() + "/old.txt"));
  put("out.partial/new.txt");
  forced.finish();
  EXPECT_TRUE(fs::exists(out() + "/new.txt"));
  EXPECT_FALSE(fs::exists(out() + "/old.txt"));
}

TEST_F(OutFolderTest, NeverHoldsWhatTheRunReads) {
  put("out/model/config.json");
  EXPECT_THROW(OutFolder(out(), false, true, {(root_ / "out/model").string()}), Error);
  EXPECT_THROW(OutFolder(root_.string() + "/missing/out", false, false, {}), Error);
  EXPECT_NO_THROW(OutFolder(out(), false, true, {(root_ / "output").string()}));
}

TEST(ConvertConfigTest, PresetsAreNamedAndRecipesTellRunsApart) {
  EXPECT_THROW(preset("slow"), Error);
  ConvertConfig a;
  a.model = "m\"odel\n";
  a.distil = preset("demo").distil;
  ConvertConfig b = a;
  EXPECT_EQ(to_toml(a, "d"), to_toml(b, "d"));
  b.seed = 1;
  EXPECT_NE(to_toml(a, "d"), to_toml(b, "d"));
  b = a;
  b.recover.recut = 0.5;
  EXPECT_NE(to_toml(a, "d"), to_toml(b, "d"));
  EXPECT_NE(to_toml(a, "d"), to_toml(a, "e"));
  EXPECT_NE(to_toml(a, "d").find("model = \"m\\\"odel\\n\""), std::string::npos);
}

}  // namespace
}  // namespace hedgerow::convert
