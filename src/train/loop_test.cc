#include "train/loop.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "formats/json.h"
#include "hedgerow/error.h"
#include "train/checkpoint.h"
#include "train/progress.h"

namespace hedgerow::train {
namespace {

namespace fs = std::filesystem;

// Least squares on batches that follow from the index; fails at a chosen step.
class Regression : public Objective {
 public:
  Regression() {
    at::Generator generator = at::detail::createCPUGenerator(3);
    weight_ = at::randn({4, 3}, generator).requires_grad_();
    bias_ = at::zeros({3}).requires_grad_();
    unused_ = at::ones({2}).requires_grad_();
    truth_ = at::randn({4, 3}, generator);
  }
  std::vector<ParameterGroup> parameter_groups() override {
    return {{{{"weight", weight_}, {"unused", unused_}}, 0.05, 0.01}, {{{"bias", bias_}}, 0.01, 0}};
  }
  StepResult step(int64_t index) override {
    if (index == crash_at) throw std::runtime_error("power cut");
    at::Tensor loss = loss_of(index);
    if (index == nan_at) loss = loss * std::numeric_limits<double>::quiet_NaN();
    loss.backward();
    return {loss.item<double>(), {{"mse", loss.item<double>()}}, 16};
  }
  std::optional<StepResult> evaluate() override {
    const at::NoGradGuard no_grad;
    return StepResult{loss_of(-1).item<double>(), {}, 16};
  }
  int64_t crash_at = -1, nan_at = -1;
  at::Tensor weight_, bias_, unused_;

 private:
  at::Tensor loss_of(int64_t index) const {
    at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(100 + index));
    const at::Tensor x = at::randn({16, 4}, generator);
    return (x.matmul(weight_) + bias_ - x.matmul(truth_)).pow(2).mean();
  }
  at::Tensor truth_;
};

class LoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / concat("hedgerow_loop_test_", ::getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }

  LoopConfig config(const char* folder) const {
    LoopConfig c;
    c.stage = "fit";
    c.schedule = {Schedule::Kind::cosine, 40, 5};
    c.max_grad_norm = 1.0;
    c.evaluate_every = 10;
    c.checkpoint_every_s = 0;  // after every step
    c.training_folder = path(folder);
    c.quiet = true;
    return c;
  }
  fs::path folder_;
};

std::vector<std::pair<std::string, int64_t>> logged_steps(const std::string& path) {
  std::vector<std::pair<std::string, int64_t>> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const formats::Json json = formats::parse_json(line, path);
    for (const char* key : {"loss", "time_s", "peak_bytes"})
      EXPECT_TRUE(json.at(key).is_number()) << line;
    out.emplace_back(json.at("split").get<std::string>(), json.at("step").get<int64_t>());
  }
  return out;
}

TEST_F(LoopTest, LowersTheLossAndLogsEveryStep) {
  Regression objective;
  LoopResult result;
  {
    MetricsLog log(path("metrics.jsonl"), 0);
    LoopConfig c = config("training");
    c.schedule.steps = 200;
    result = run_loop(objective, c, &log);
  }
  EXPECT_LT(result.last_loss, 0.1 * result.first_loss);
  const auto steps = logged_steps(path("metrics.jsonl"));
  ASSERT_EQ(steps.size(), 220u);
  EXPECT_EQ(steps.back(), (std::pair<std::string, int64_t>("heldout", 200)));
  EXPECT_TRUE(has_checkpoint(path("training/last")));
  EXPECT_TRUE(has_checkpoint(path("training/best")));
  EXPECT_TRUE(at::equal(objective.unused_, at::ones({2}))) << "no gradient, no update";
}

TEST_F(LoopTest, ResumedRunEqualsUninterruptedBitForBit) {
  Regression whole;
  {
    MetricsLog log(path("whole.jsonl"), 0);
    run_loop(whole, config("whole"), &log);
  }
  for (const int64_t crash_at : {1, 7, 23, 39}) {
    const std::string name = concat("parts", crash_at);
    Regression first;
    first.crash_at = crash_at;
    {
      MetricsLog log(path(name.c_str()) + ".jsonl", 0);
      EXPECT_THROW(run_loop(first, config(name.c_str()), &log), std::runtime_error);
    }
    std::ofstream(path(name.c_str()) + ".jsonl", std::ios::app)
        << "{\"step\": 99, \"loss\"";  // torn write
    Regression second;
    const RunState state = read_checkpoint_state(path(name.c_str()) + "/last");
    EXPECT_EQ(state.step, crash_at);
    {
      MetricsLog log(path(name.c_str()) + ".jsonl", state.log_bytes);
      run_loop(second, config(name.c_str()), &log);
    }
    EXPECT_TRUE(at::equal(whole.weight_, second.weight_)) << "crash at " << crash_at;
    EXPECT_TRUE(at::equal(whole.bias_, second.bias_)) << "crash at " << crash_at;
    EXPECT_EQ(logged_steps(path("whole.jsonl")), logged_steps(path(name.c_str()) + ".jsonl"));
  }
}

TEST_F(LoopTest, ObservesTheStartRegularStepsAndTheEndOnce) {
  std::vector<int64_t> seen;
  const auto observed = [&](const char* folder) {
    LoopConfig c = config(folder);
    c.observe_every = 12;
    c.observe = [&](int64_t step) { seen.push_back(step); };
    return c;
  };
  const std::vector<int64_t> expected = {0, 12, 24, 36, 40};
  Regression whole;
  run_loop(whole, observed("whole"), nullptr);
  EXPECT_EQ(seen, expected);
  seen.clear();
  for (const int64_t crash_at : {1, 12, 25}) {  // one run, with a checkpoint after every step
    Regression part;
    part.crash_at = crash_at;
    EXPECT_THROW(run_loop(part, observed("parts"), nullptr), std::runtime_error);
  }
  Regression rest;
  run_loop(rest, observed("parts"), nullptr);
  EXPECT_EQ(seen, expected);
}

TEST_F(LoopTest, NamesTheStepOfALossThatIsNotANumber) {
  Regression objective;
  objective.nan_at = 4;
  try {
    run_loop(objective, config("training"), nullptr);
    FAIL() << "a NaN loss must be refused";
  } catch (const Failure& failure) {
    EXPECT_NE(
        std::string(failure.what()).find("fit: the loss must be finite; got nan at step 5 of 40"),
        std::string::npos)
        << failure.what();
  }
}

TEST_F(LoopTest, CheckpointOfAnotherRunIsRefused) {
  Regression objective;
  run_loop(objective, config("training"), nullptr);
  const NamedTensors other = {{"parameter.weight", at::zeros({2, 2})}};
  EXPECT_THROW(load_checkpoint(path("training/last"), "fit", other), Error);
  EXPECT_THROW(load_checkpoint(path("training/last"), "other", other), Error);
}

TEST(AdamWTest, EqualsTheFormula) {
  at::Tensor p = at::full({3}, 2.0).requires_grad_();
  AdamW optimizer({{{{"p", p}}, 0.1, 0.5}}, {0.9, 0.99, 1e-8});
  double value = 2.0, m = 0, v = 0;
  for (int t = 1; t <= 5; ++t) {
    optimizer.zero_grad();
    const double g = 0.3 * t;
    (p * g).sum().backward();
    optimizer.step(0.5);
    const double lr = 0.05;
    value -= lr * 0.5 * value;
    m = 0.9 * m + 0.1 * g;
    v = 0.99 * v + 0.01 * g * g;
    value -= lr * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.99, t))) + 1e-8);
    EXPECT_NEAR(p[0].item<double>(), value, 1e-5);
  }
}

TEST(AdamWTest, ClipsByTheNormOfAllGradients) {
  at::Tensor a = at::zeros({2}).requires_grad_(), b = at::zeros({1}).requires_grad_();
  AdamW optimizer({{{{"a", a}}, 0.1, 0}, {{{"b", b}}, 0.1, 0}}, {});
  (3.0 * a.select(0, 0) + 4.0 * b.select(0, 0)).backward();
  EXPECT_NEAR(optimizer.clip_grad_norm(1.0), 5.0, 1e-6);
  EXPECT_NEAR(a.grad()[0].item<double>(), 0.6, 1e-6);
  EXPECT_NEAR(b.grad()[0].item<double>(), 0.8, 1e-6);
  EXPECT_NEAR(optimizer.clip_grad_norm(0), 1.0, 1e-6);
}

TEST(AdamWTest, RefusesWhatCannotTrain) {
  EXPECT_THROW(AdamW({}, {}), Error);
  EXPECT_THROW(AdamW({{{{"p", at::zeros({1})}}, 0.1, 0}}, {}), Error);
  at::Tensor p = at::zeros({1}).requires_grad_();
  EXPECT_THROW(AdamW({{{{"p", p}, {"p", p}}, 0.1, 0}}, {}), Error);
}

TEST(ScheduleTest, WarmsUpAndDecays) {
  const Schedule s{Schedule::Kind::cosine, 100, 10};
  EXPECT_DOUBLE_EQ(s.factor(0), 0.1);
  EXPECT_DOUBLE_EQ(s.factor(9), 1.0);
  EXPECT_DOUBLE_EQ(s.factor(10), 1.0);
  EXPECT_NEAR(s.factor(55), 0.5, 1e-12);
  EXPECT_GT(s.factor(99), 0.0);
  EXPECT_DOUBLE_EQ((Schedule{Schedule::Kind::constant, 100, 0}).factor(99), 1.0);
}

TEST(ProgressTest, ClockText) {
  EXPECT_EQ(clock_text(5.4), "0:05");
  EXPECT_EQ(clock_text(65), "1:05");
  EXPECT_EQ(clock_text(3723), "1:02:03");
}

}  // namespace
}  // namespace hedgerow::train
