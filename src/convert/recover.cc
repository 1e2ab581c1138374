#include "convert/recover.h"

#include <ATen/ATen.h>

#include <iterator>
#include <numeric>
#include <optional>
#include <string>

#include "base/counter_rng.h"
#include "hedgerow/error.h"
#include "nn/precision.h"

namespace hedgerow::convert {
namespace {

// Parameters that an embedding does not depend on: a head's, and the pooler's.
bool is_unused(const std::string& name) {
  for (const char* part : {"pooler.", "masked_lm.", "classifier."})
    if (name.rfind(part, 0) == 0) return true;
  return false;
}

bool is_mixer(const std::string& name) { return name.find(".hedgerow.") != std::string::npos; }
bool is_lora(const std::string& name) { return name.find(".lora_") != std::string::npos; }

constexpr uint64_t kRecutSalt = 0x7265637574;  // another sequence than the order's

// In [0, 1).
double uniform(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// sum of (ours - theirs)^2 over unpadded tokens, relative to theirs.
at::Tensor relative_distance(const at::Tensor& ours, const at::Tensor& theirs,
                             const at::Tensor& keep) {
  return ((ours - theirs).square() * keep).sum() / (theirs.square() * keep).sum();
}

class RecoverObjective : public train::Objective {
 public:
  RecoverObjective(const models::LoadedModel& teacher, models::LoadedModel& model,
                   const Corpus& corpus, const RecoverConfig& config, int64_t seed)
      : teacher_(teacher),
        model_(model),
        corpus_(corpus),
        config_(config),
        windows_(corpus),
        seed_(static_cast<uint64_t>(seed)),
        order_(data::lengths(corpus.train), config.batch, seed_) {}

  std::vector<train::ParameterGroup> parameter_groups() override {
    train::ParameterGroup weights, mixers;
    weights.lr = config_.lr;
    mixers.lr = config_.mixer_lr;
    for (auto& item : model_.encoder->named_parameters()) {
      const std::string& name = item.key();
      const bool others = config_.lora_rank > 0 ? is_lora(name) : !is_unused(name);
      const bool trains = is_mixer(name) || (others && !config_.mixers_only);
      at::Tensor value = item.value().requires_grad_(trains);
      if (trains) (is_mixer(name) ? mixers : weights).add(name, value);
    }
    if (config_.mixers_only) return {mixers};
    return {weights, mixers};
  }

  train::StepResult step(int64_t index) override {
    const int64_t per_epoch = order_.batches_per_epoch();
    const data::BatchPosition position{index / per_epoch, index % per_epoch};
    if (!(order_.position() == position)) order_.seek(position);
    const nn::LinearInBfloat16 narrow(config_.bfloat16);
    const std::vector<data::Sequence> texts = texts_of(order_.next(), position);
    std::vector<int64_t> rows(texts.size());
    std::iota(rows.begin(), rows.end(), 0);
    const Losses losses = losses_of(texts, rows);
    losses.total.backward();
    return losses.result();
  }

  std::optional<train::StepResult> evaluate() override {
    if (corpus_.watched.empty()) return std::nullopt;
    const at::NoGradGuard no_grad;
    train::StepResult mean{0, {{"embedding_loss", 0.0}, {"hidden_loss", 0.0}}, 0};
    const auto batches = data::batches_by_length(data::lengths(corpus_.watched), config_.batch);
    for (const std::vector<int64_t>& rows : batches) {
      const train::StepResult one = losses_of(corpus_.watched, rows).result();
      const double share =
          static_cast<double>(rows.size()) / static_cast<double>(corpus_.watched.size());
      mean.loss += share * one.loss;
      for (size_t i = 0; i < 2; ++i) mean.scalars[i].second += share * one.scalars[i].second;
      mean.num_tokens += one.num_tokens;
    }
    return mean;
  }

 private:
  struct Losses {
    at::Tensor total, embedding, hidden;
    int64_t num_tokens = 0;
    train::StepResult result() const {
      return {
          total.item<double>(),
          {{"embedding_loss", embedding.item<double>()}, {"hidden_loss", hidden.item<double>()}},
          num_tokens};
    }
  };

  // The texts of a batch, some of them recut (RecoverConfig::recut) as seed and position say.
  std::vector<data::Sequence> texts_of(const std::vector<int64_t>& indices,
                                       const data::BatchPosition& position) const {
    const uint64_t key = mix64(mix64(mix64(seed_ ^ kRecutSalt) ^ position.epoch) ^ position.batch);
    std::vector<data::Sequence> texts;
    for (const int64_t index : indices) {
      const data::Sequence& text = corpus_.train[index];
      const uint64_t draw = mix64(key ^ texts.size());
      const bool recut = position.epoch > 0 && uniform(draw) < config_.recut;
      texts.push_back(recut ? windows_.window(std::ssize(text.ids), draw) : text);
    }
    return texts;
  }

  Losses losses_of(const std::vector<data::Sequence>& texts, const std::vector<int64_t>& rows) {
    const data::Batch batch = data::make_batch(texts, rows, model_.encoder->config().pad_token_id);
    const models::EncoderInput input{
        batch.input_ids, batch.attention_mask, batch.token_type_ids, {}};
    at::Tensor their_hidden, their_embedding;
    {
      const at::NoGradGuard no_grad;
      their_hidden = teacher_.encoder->forward(input).last_hidden_state;  // [B,T,hidden]
      their_embedding = models::pool(teacher_.pooling, their_hidden, batch.attention_mask);
    }
    const at::Tensor hidden = model_.encoder->forward(input).last_hidden_state;
    const at::Tensor embedding = models::pool(model_.pooling, hidden, batch.attention_mask);
    const at::Tensor keep = batch.attention_mask.to(hidden.scalar_type()).unsqueeze(-1);  // [B,T,1]
    Losses losses;
    losses.embedding = (1 - at::cosine_similarity(embedding, their_embedding, -1)).mean();
    losses.hidden = relative_distance(hidden, their_hidden, keep);
    losses.total = losses.embedding + config_.hidden_weight * losses.hidden;
    losses.num_tokens = batch.attention_mask.sum().item<int64_t>();
    return losses;
  }

  const models::LoadedModel& teacher_;
  models::LoadedModel& model_;
  const Corpus& corpus_;
  RecoverConfig config_;
  RandomWindows windows_;
  uint64_t seed_;
  data::BatchOrder order_;
};

}  // namespace

std::unique_ptr<train::Objective> recover_objective(const models::LoadedModel& teacher,
                                                    models::LoadedModel& model,
                                                    const Corpus& corpus,
                                                    const RecoverConfig& config, int64_t seed) {
  return std::make_unique<RecoverObjective>(teacher, model, corpus, config, seed);
}

}  // namespace hedgerow::convert
