#include "train/loop.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <limits>
#include <numeric>

#include "base/interrupt.h"
#include "base/timer.h"
#include "hedgerow/error.h"
#include "train/checkpoint.h"
#include "train/progress.h"

namespace hedgerow::train {
namespace {

class Loop {
 public:
  Loop(Objective& objective, const LoopConfig& config, MetricsLog* log)
      : objective_(objective),
        config_(config),
        log_(log),
        optimizer_(objective.parameter_groups(), config.adamw) {
    state_.stage = config.stage;
    state_.best_loss = std::numeric_limits<double>::infinity();
    if (!config.training_folder.empty() && has_checkpoint(last()) &&
        read_checkpoint_state(last()).stage == config.stage)
      state_ = load_checkpoint(last(), config.stage, optimizer_.state());
    earlier_s_ = state_.time_s;
  }

  LoopResult run() {
    const int64_t steps = config_.schedule.steps;
    Progress progress(config_.stage, steps, config_.quiet, state_.step);
    if (state_.step == 0) observe();
    while (state_.step < steps) {
      one_step();
      progress.update(state_.step, detail());
      observe();
      if (due(config_.evaluate_every)) evaluate();
      if (interrupted()) stop();
      if (since_checkpoint_.seconds() > config_.checkpoint_every_s) save();
    }
    if (since_checkpoint_steps_ > 0) save();
    result_.seconds = seconds();
    if (!recent_.empty()) result_.last_loss = recent_mean();
    return result_;
  }

 private:
  std::string last() const { return config_.training_folder + "/last"; }
  double seconds() const { return earlier_s_ + timer_.seconds(); }
  double recent_mean() const {
    return std::accumulate(recent_.begin(), recent_.end(), 0.0) /
           static_cast<double>(recent_.size());
  }

  // Whether what happens every so many steps, and after the last, happens now.
  bool due(int64_t every) const {
    return every > 0 && (state_.step % every == 0 || state_.step == config_.schedule.steps);
  }

  void observe() {
    if (due(config_.observe_every)) config_.observe(state_.step);
  }

  void one_step() {
    const Timer timer;
    const double factor = config_.schedule.factor(state_.step);
    optimizer_.zero_grad();
    const StepResult result = objective_.step(state_.step);
    require_finite(result.loss, "loss");
    const double norm = optimizer_.clip_grad_norm(config_.max_grad_norm);
    require_finite(norm, "gradient norm");
    optimizer_.step(factor);
    if (since_checkpoint_steps_++ == 0 && recent_.empty()) result_.first_loss = result.loss;
    ++state_.step;
    recent_.push_back(result.loss);
    if (static_cast<int64_t>(recent_.size()) > std::max<int64_t>(1, config_.schedule.steps / 10))
      recent_.pop_front();
    lr_ = optimizer_.lr() * factor;
    tokens_per_s_ = static_cast<double>(result.num_tokens) / std::max(timer.seconds(), 1e-9);
    if (log_ != nullptr)
      log_->write(
          {config_.stage, state_.step, "train", result, lr_, norm, tokens_per_s_, seconds()});
  }

  void evaluate() {
    const std::optional<StepResult> result = objective_.evaluate();
    if (!result) return;
    require_finite(result->loss, "held-out loss");
    if (log_ != nullptr)
      log_->write({config_.stage, state_.step, "heldout", *result, {}, {}, {}, seconds()});
    if (result->loss >= state_.best_loss) return;
    state_.best_loss = result->loss;
    if (!config_.training_folder.empty())
      save_to(config_.training_folder + "/best", optimizer_.parameters());
  }

  void require_finite(double value, const char* what) const {
    if (!std::isfinite(value))
      throw Failure(concat(config_.stage, ": the ", what, " must be finite; got ", value,
                           " at step ", state_.step + 1, " of ", config_.schedule.steps,
                           " (a lower learning rate may help)"));
  }

  void save() {
    if (!config_.training_folder.empty()) save_to(last(), optimizer_.state());
    since_checkpoint_ = Timer();
    since_checkpoint_steps_ = 0;
  }

  void save_to(const std::string& folder, const NamedTensors& tensors) {
    state_.time_s = seconds();
    state_.log_bytes = log_ != nullptr ? log_->num_bytes() : 0;
    save_checkpoint(folder, state_, tensors);
  }

  [[noreturn]] void stop() {
    save();
    throw Interrupted(concat("interrupted at step ", state_.step, " of ", config_.schedule.steps,
                             " of ", config_.stage));
  }

  std::string detail() const {
    char text[96];
    std::snprintf(text, sizeof text, "loss %.4f  lr %.1e  %.0f tokens/s", recent_mean(), lr_,
                  tokens_per_s_);
    return text;
  }

  Objective& objective_;
  const LoopConfig& config_;
  MetricsLog* log_;
  AdamW optimizer_;
  RunState state_;
  LoopResult result_;
  std::deque<double> recent_;  // losses of the last tenth of the run
  double earlier_s_ = 0, lr_ = 0, tokens_per_s_ = 0;
  int64_t since_checkpoint_steps_ = 0;
  Timer timer_, since_checkpoint_;
};

}  // namespace

LoopResult run_loop(Objective& objective, const LoopConfig& config, MetricsLog* log) {
  return Loop(objective, config, log).run();
}

}  // namespace hedgerow::train
