#include "convert/distil.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/generated/variable_factories.h>

#include <algorithm>
#include <optional>
#include <set>

#include "analysis/observe.h"
#include "analysis/query_blocks.h"
#include "base/counter_rng.h"
#include "hedgerow/error.h"
#include "nn/precision.h"

namespace hedgerow::convert {
namespace {

// Random numbers of one purpose that depend on (seed, batch, draw) alone.
class Draws {
 public:
  Draws(int64_t seed, int64_t index)
      : key_(mix64(mix64(static_cast<uint64_t>(seed)) ^ static_cast<uint64_t>(index))) {}
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(mix64(key_ ^ count_++) % static_cast<uint64_t>(limit));
  }

 private:
  uint64_t key_, count_ = 0;
};

class DistilObjective : public train::Objective {
 public:
  DistilObjective(models::Encoder& teacher, models::Encoder& model,
                  const std::vector<int64_t>& layers, const Corpus& corpus,
                  const DistilConfig& config, int64_t seed)
      : teacher_(teacher),
        model_(model),
        layers_(layers.begin(), layers.end()),
        corpus_(corpus),
        config_(config),
        seed_(seed) {
    const int64_t most = teacher.max_tokens();
    for (int64_t length : config.lengths)
      if (length <= most) lengths_.push_back(length);
    if (lengths_.empty()) lengths_.push_back(most);
    const int64_t fixed = static_cast<int64_t>(corpus.prefix.size() + corpus.suffix.size());
    HEDGEROW_CHECK(*std::min_element(lengths_.begin(), lengths_.end()) > fixed,
                   "distil: a window must be longer than its ", fixed, " special tokens; got ",
                   *std::min_element(lengths_.begin(), lengths_.end()));
  }

  std::vector<train::ParameterGroup> parameter_groups() override {
    train::ParameterGroup group;
    group.lr = config_.lr;
    for (auto& parameter : model_.parameters()) parameter.requires_grad_(false);
    for (int64_t layer : layers_) {
      for (auto& item : model_.attention(layer).mixer().named_parameters()) {
        group.add(concat("layer.", layer, ".", item.key()), item.value().requires_grad_(true));
      }
    }
    return {group};
  }

  train::StepResult step(int64_t index) override { return losses(batch(index), true); }

  // One window of every length, so that the curve does not follow a batch's length.
  std::optional<train::StepResult> evaluate() override {
    train::StepResult mean{0, {{"kl", 0.0}}, 0};
    std::vector<models::EncoderInput> windows;
    for (const int64_t length : lengths_) {
      if (length > num_tokens(corpus_.watched_bodies)) continue;
      std::vector<int64_t> ids;
      append_window(corpus_, corpus_.watched_bodies, 0, length, ids);
      windows.emplace_back();
      windows.back().input_ids = at::tensor(ids, at::kLong).unsqueeze(0);
    }
    if (windows.empty()) return std::nullopt;
    for (const models::EncoderInput& window : windows) {
      const train::StepResult one = losses(window, false);
      mean.loss += one.loss / static_cast<double>(windows.size());
      mean.scalars[0].second += one.scalars[0].second / static_cast<double>(windows.size());
      mean.num_tokens += one.num_tokens;
    }
    return mean;
  }

 private:
  // Mean over the layers; with `record` also adds the gradients.
  train::StepResult losses(const models::EncoderInput& input, bool record) {
    double cross_entropy = 0, divergence = 0;
    const analysis::ObserveLayers observe(
        teacher_, [&](int64_t layer, const nn::AttentionTrace& trace) {
          if (layers_.count(layer) == 0) return;
          const auto [ce, kl] = layer_losses(layer, trace, record);
          cross_entropy += ce / static_cast<double>(layers_.size());
          divergence += kl / static_cast<double>(layers_.size());
        });
    const at::NoGradGuard no_grad;
    const nn::LinearInBfloat16 narrow(record && config_.bfloat16);
    teacher_.forward(input);
    return {cross_entropy, {{"kl", divergence}}, input.input_ids.numel()};
  }

  // Loss and KL of one layer; with `record` also adds its gradient.
  std::pair<double, double> layer_losses(int64_t layer, const nn::AttentionTrace& trace,
                                         bool record) {
    const double rows = static_cast<double>(trace.q.numel() / trace.q.size(-1));
    double cross_entropy = 0, entropy = 0;
    analysis::for_each_query_block(trace, [&](const analysis::QueryBlock& block) {
      const at::Tensor log_p =
          analysis::log_weights(teacher_.attention(layer).mixer(), trace, block);  // [B,H,n,S]
      const at::Tensor p = log_p.exp();
      entropy -= at::where(p > 0, p * log_p, 0).sum().item<double>() / rows;
      const at::AutoGradMode gradients(record);
      const at::Tensor log_s = analysis::log_weights(model_.attention(layer).mixer(), trace, block);
      const at::Tensor loss = -at::where(p > 0, p * log_s, 0).sum() / rows;
      cross_entropy += loss.item<double>();
      if (record) loss.backward();
    });
    const double kl = cross_entropy - entropy;
    if (kl < -1e-4 * std::max(1.0, entropy))
      throw Failure(concat("distil: the divergence from the teacher must be at least 0; got ", kl,
                           " in layer ", layer));
    return {cross_entropy, kl};
  }

  models::EncoderInput batch(int64_t index) const {
    Draws draws(seed_, index);
    const int64_t length = lengths_[draws.below(static_cast<int64_t>(lengths_.size()))];
    const int64_t rows = std::max<int64_t>(1, config_.tokens / length);
    const int64_t spare = teacher_.config().max_positions - length;
    std::vector<int64_t> ids, positions;
    for (int64_t row = 0; row < rows; ++row) {
      append_window(corpus_, corpus_.train_bodies,
                    draws.below(static_cast<int64_t>(corpus_.train_bodies.size())), length, ids);
      const int64_t offset = draws.below(2) == 0 ? 0 : draws.below(spare + 1);
      for (int64_t t = 0; t < length; ++t) positions.push_back(offset + t);
    }
    models::EncoderInput input;
    input.input_ids = at::tensor(ids, at::kLong).view({rows, length});
    input.position_ids = at::tensor(positions, at::kLong).view({rows, length});
    return input;
  }

  static int64_t num_tokens(const std::vector<std::vector<int64_t>>& bodies) {
    int64_t count = 0;
    for (const auto& body : bodies) count += static_cast<int64_t>(body.size());
    return count;
  }

  models::Encoder& teacher_;
  models::Encoder& model_;
  std::set<int64_t> layers_;
  const Corpus& corpus_;
  DistilConfig config_;
  int64_t seed_;
  std::vector<int64_t> lengths_;
};

}  // namespace

std::unique_ptr<train::Objective> distil_objective(models::Encoder& teacher, models::Encoder& model,
                                                   const std::vector<int64_t>& layers,
                                                   const Corpus& corpus, const DistilConfig& config,
                                                   int64_t seed) {
  return std::make_unique<DistilObjective>(teacher, model, layers, corpus, config, seed);
}

}  // namespace hedgerow::convert
