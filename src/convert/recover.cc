#include "convert/recover.h"

#include <ATen/ATen.h>

#include <string>

#include "hedgerow/error.h"

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
        order_(data::lengths(corpus.train), config.batch, static_cast<uint64_t>(seed)) {}

  std::vector<train::ParameterGroup> parameter_groups() override {
    train::ParameterGroup weights, mixers;
    weights.lr = config_.lr;
    mixers.lr = config_.mixer_lr;
    for (auto& item : model_.encoder->named_parameters()) {
      const std::string& name = item.key();
      const bool trains =
          is_mixer(name) || (config_.lora_rank > 0 ? is_lora(name) : !is_unused(name));
      at::Tensor value = item.value().requires_grad_(trains);
      if (trains) (is_mixer(name) ? mixers : weights).parameters.push_back({name, value});
    }
    return {weights, mixers};
  }

  train::StepResult step(int64_t index) override {
    const int64_t per_epoch = order_.batches_per_epoch();
    const data::BatchPosition position{index / per_epoch, index % per_epoch};
    if (!(order_.position() == position)) order_.seek(position);
    const data::Batch batch =
        data::make_batch(corpus_.train, order_.next(), model_.encoder->config().pad_token_id);
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
    const at::Tensor embedding_loss =
        (1 - at::cosine_similarity(embedding, their_embedding, -1)).mean();
    const at::Tensor hidden_loss = relative_distance(hidden, their_hidden, keep);
    const at::Tensor loss = embedding_loss + config_.hidden_weight * hidden_loss;
    loss.backward();
    return {loss.item<double>(),
            {{"embedding_loss", embedding_loss.item<double>()},
             {"hidden_loss", hidden_loss.item<double>()}},
            batch.attention_mask.sum().item<int64_t>()};
  }

 private:
  const models::LoadedModel& teacher_;
  models::LoadedModel& model_;
  const Corpus& corpus_;
  RecoverConfig config_;
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
