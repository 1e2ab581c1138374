#include "convert/convert.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/interrupt.h"
#include "base/timer.h"
#include "convert/artifacts.h"
#include "convert/corpus.h"
#include "convert/distil.h"
#include "convert/fewer_heads.h"
#include "convert/fit_scores.h"
#include "convert/out_folder.h"
#include "convert/recover.h"
#include "convert/verify.h"
#include "data/md5.h"
#include "hedgerow/error.h"
#include "models/mixer_config.h"
#include "train/checkpoint.h"
#include "train/head_values_log.h"
#include "train/loop.h"

namespace hedgerow::convert {
namespace {

// What a batch of joined texts is measured by: about the tokens of a text in a batch of texts.
constexpr int64_t kTokensOfText = 40;

constexpr double kLoraAlphaPerRank = 2.0;  // alpha = 16 at rank 8 (METHODS: the Llama run)

std::string data_digest(const ConvertConfig& config) {
  std::string digest = data::hex_md5(read_file(config.data));
  if (!config.heldout.empty()) digest += "+" + data::hex_md5(read_file(config.heldout));
  return digest;
}

std::vector<int64_t> chosen_layers(const ConvertConfig& config, int64_t num_layers) {
  std::vector<int64_t> layers = config.layers;
  if (layers.empty())
    for (int64_t i = 0; i < num_layers; ++i) layers.push_back(i);
  for (int64_t layer : layers)
    HEDGEROW_CHECK(layer >= 0 && layer < num_layers, "--layers: must be in [0, ", num_layers,
                   "); got ", layer);
  return layers;
}

// What is done so far, in training/progress.json: results of measurements, seconds of stages, and
// the size that metrics.jsonl had when the current stage began.
class ProgressFile {
 public:
  explicit ProgressFile(std::string path) : path_(std::move(path)) {
    if (std::filesystem::exists(path_)) json_ = formats::read_json_file(path_);
  }
  bool has(const char* section, const std::string& name) const {
    return json_.at(section).contains(name);
  }
  const formats::Json& section(const char* name) const { return json_.at(name); }
  void set(const char* section, const std::string& name, formats::Json value) {
    json_[section][name] = std::move(value);
    write_file_atomically(path_, formats::dump_json(json_) + "\n");
  }
  int64_t log_bytes() const { return json_.at("log_bytes").value("at_stage", int64_t{0}); }

 private:
  std::string path_;
  formats::Json json_ = {{"results", formats::Json::object()},
                         {"seconds", formats::Json::object()},
                         {"done", formats::Json::object()},
                         {"log_bytes", formats::Json::object()}};
};

class Conversion {
 public:
  Conversion(const ConvertConfig& config, OutFolder& out);
  formats::Json run(const std::function<void(const std::string&)>& before_rename);

 private:
  void note(const std::string& text) const {
    if (!config_.quiet) std::fprintf(stderr, "%s\n", text.c_str());
  }
  void claim_folder();
  void swap_mixers();
  void fit_lengths();
  void measure(const char* stage, const char* label);
  void distil();
  void recover();
  train::LoopConfig loop_config(const char* stage, int64_t steps, int64_t warmup_steps) const;
  void run_stage(const char* stage, train::Objective& objective, train::LoopConfig loop);
  train::NamedTensors mixer_tensors();
  formats::Json write(const std::function<void(const std::string&)>& before_rename);

  ConvertConfig config_;
  OutFolder& out_;
  models::LoadedModel teacher_, model_;
  std::vector<int64_t> layers_;
  Corpus corpus_;
  formats::Json fit_;  // of mechanisms that are fitted to scores, else null
  std::unique_ptr<Verifier> verifier_;
  std::unique_ptr<ProgressFile> progress_;
};

Conversion::Conversion(const ConvertConfig& config, OutFolder& out) : config_(config), out_(out) {
  teacher_ = models::load_model(config.model);
  model_ = models::load_model(config.model);
  HEDGEROW_CHECK(teacher_.pooling.refused.empty(), config.model, ": ", teacher_.pooling.refused);
  for (auto& parameter : teacher_.encoder->parameters()) parameter.requires_grad_(false);
  layers_ = chosen_layers(config, model_.encoder->num_layers());
  swap_mixers();
  fit_lengths();
  corpus_ = load_corpus(config_, std::min(teacher_.max_tokens(), model_.max_tokens()));
  verifier_ = std::make_unique<Verifier>(
      teacher_,
      Verifier::Data{corpus_.heldout, corpus_.heldout_bodies, corpus_.prefix, corpus_.suffix,
                     config_.verify.kl_lengths, config_.verify.kl_tokens},
      config.quiet);
  start_fewer_heads(*teacher_.encoder, *model_.encoder, layers_, corpus_);
  fit_ = fit_to_scores(*teacher_.encoder, *model_.encoder, layers_, corpus_);
  claim_folder();
  note(concat("convert: ", corpus_.train.size(), " training and ", corpus_.num_heldout,
              " held-out texts, ", layers_.size(), " of ", model_.encoder->num_layers(),
              " layers to ", config.kind));
}

// Writes run.toml, or makes sure that a resumed run is the same run.
void Conversion::claim_folder() {
  out_.prepare();
  const std::string recipe = to_toml(config_, data_digest(config_));
  const std::string path = out_.file("run.toml");
  std::error_code ignored;
  if (out_.state() == OutFolder::State::resumed && std::filesystem::exists(path, ignored)) {
    HEDGEROW_CHECK(read_file(path) == recipe, "--resume: ", out_.path(),
                   " was started with other settings or data (see its run.toml); repeat the same "
                   "command, or --force");
  } else {
    std::filesystem::create_directories(out_.file("training"));
    write_file_atomically(path, recipe);
  }
  progress_ = std::make_unique<ProgressFile>(out_.file("training/progress.json"));
}

void Conversion::swap_mixers() {
  for (int64_t layer : layers_) {
    nn::Attention& attention = model_.encoder->attention(layer);
    attention.set_mixer_and_projections(
        nn::make_mixer(config_.kind, attention.shape().layout, config_.options));
  }
  models::share_parameters(*model_.encoder);
}

// Lengths and batches that were not asked for become what the model can take; those that were are
// refused.
void Conversion::fit_lengths() {
  int64_t most = std::min(teacher_.encoder->max_tokens(), model_.encoder->max_tokens());
  const nn::KeyRange made_for = model_.encoder->attention(layers_.front()).mixer().made_for();
  if (config_.join) most = std::min(most, made_for.most.value_or(most));
  const int64_t exact = made_for.above;
  RecoverConfig& recover = config_.recover;
  if (recover.fit_length) recover.length = std::min(recover.length, most);
  HEDGEROW_CHECK(recover.length <= most, "--length: a text must have at most ", most,
                 " tokens, the model's positions or what the mechanism is made for; got ",
                 recover.length);
  if (config_.join && recover.fit_batch)
    recover.batch = std::max<int64_t>(1, recover.batch * kTokensOfText / recover.length);
  HEDGEROW_CHECK(!config_.join || recover.length > exact,
                 "--length: windows must be longer than exact_up_to, ", exact, "; got ",
                 recover.length);
  std::vector<int64_t>& lengths = config_.verify.kl_lengths;
  for (std::vector<int64_t>* some : {&config_.distil.lengths, &lengths}) {
    std::erase_if(*some, [&](int64_t length) { return length > most || length <= exact; });
    if (some->empty()) *some = {most};
  }
}

void Conversion::measure(const char* stage, const char* label) {
  if (progress_->has("results", stage)) return;
  const Timer timer;
  const Measures measures = verifier_->measure(model_, label);
  progress_->set("results", stage, measured(measures));
  progress_->set("seconds", concat("verify_", stage), timer.seconds());
  std::string kl;
  for (const auto& [length, value] : measures.kl) {
    char text[48];
    std::snprintf(text, sizeof text, "  KL@%lld %.3f", static_cast<long long>(length), value);
    kl += text;
  }
  char text[160];
  std::snprintf(text, sizeof text, "%s: cosine %.4f  nearest neighbour %.3f  top-10 %.3f", label,
                measures.embedding.embedding_cosine, measures.embedding.nn_agreement,
                measures.embedding.top10_overlap);
  note(text + kl);
}

train::LoopConfig Conversion::loop_config(const char* stage, int64_t steps,
                                          int64_t warmup_steps) const {
  train::LoopConfig loop;
  loop.stage = stage;
  loop.schedule = {train::Schedule::Kind::cosine, steps, std::min(warmup_steps, steps / 2)};
  loop.training_folder = out_.file("training");
  // Ten times in a stage, the last after its last step; heads' values at most a hundred times.
  loop.evaluate_every = std::max<int64_t>(steps / 10, 10);
  loop.observe_every = (steps + 99) / 100;
  loop.quiet = config_.quiet;
  return loop;
}

void Conversion::run_stage(const char* stage, train::Objective& objective, train::LoopConfig loop) {
  const std::string last = loop.training_folder + "/last";
  int64_t keep_bytes = progress_->log_bytes(), steps_done = 0;
  if (train::has_checkpoint(last)) {
    const train::RunState state = train::read_checkpoint_state(last);
    if (state.stage == stage) {
      keep_bytes = state.log_bytes;
      steps_done = state.step;
    }
  }
  train::MetricsLog log(out_.file("metrics.jsonl"), keep_bytes);
  train::HeadValuesLog heads(out_.file("head_values.jsonl"), *model_.encoder, stage, steps_done);
  loop.observe = [&](int64_t step) { heads.write(step); };
  const train::LoopResult result = train::run_loop(objective, loop, &log);
  progress_->set("seconds", stage, result.seconds);
  progress_->set("log_bytes", "at_stage", log.num_bytes());
}

train::NamedTensors Conversion::mixer_tensors() {
  train::NamedTensors tensors;
  for (int64_t layer : layers_)
    for (auto& item : model_.encoder->attention(layer).mixer().named_parameters())
      tensors.emplace_back(concat("layer.", layer, ".", item.key()), item.value());
  return tensors;
}

void Conversion::distil() {
  const train::NamedTensors tensors = mixer_tensors();
  if (config_.distil.steps == 0 || tensors.empty()) return;
  const std::string folder = out_.file("training/distilled");
  if (train::has_checkpoint(folder)) {
    train::load_checkpoint(folder, "distilled", tensors);
    return;
  }
  train::LoopConfig loop = loop_config("distil", config_.distil.steps, config_.distil.warmup_steps);
  std::unique_ptr<train::Objective> objective;
  if (nn::mixer_type(config_.kind).imitates_softmax) {
    objective = distil_objective(*teacher_.encoder, *model_.encoder, layers_, corpus_,
                                 config_.distil, config_.seed);
  } else {
    RecoverConfig mixers = config_.recover;
    mixers.mixers_only = true;
    mixers.mixer_lr = config_.distil.lr;
    objective = recover_objective(teacher_, model_, corpus_, mixers, config_.seed);
    loop.max_grad_norm = mixers.max_grad_norm;
  }
  run_stage("distil", *objective, loop);
  train::RunState state;
  state.stage = "distilled";
  train::save_checkpoint(folder, state, tensors);
}

void Conversion::recover() {
  if (config_.recover.steps == 0) return;
  if (config_.recover.lora_rank > 0) {
    at::manual_seed(static_cast<uint64_t>(config_.seed));
    model_.encoder->add_lora(config_.recover.lora_rank,
                             kLoraAlphaPerRank * static_cast<double>(config_.recover.lora_rank));
  }
  const auto objective =
      recover_objective(teacher_, model_, corpus_, config_.recover, config_.seed);
  train::LoopConfig loop =
      loop_config("recover", config_.recover.steps, config_.recover.warmup_steps);
  loop.max_grad_norm = config_.recover.max_grad_norm;
  run_stage("recover", *objective, loop);
  if (config_.recover.lora_rank > 0) model_.encoder->merge_lora();
}

formats::Json Conversion::write(const std::function<void(const std::string&)>& before_rename) {
  const TextEncoder encoder(config_.model);
  const formats::Json& results = progress_->section("results");
  if (!verifier_->model_embeddings().defined())
    verifier_->measure(model_, "converted");  // resumed after "after"
  const formats::Json entropy = entropy_tables(*verifier_, *teacher_.encoder, *model_.encoder);
  const formats::Json examples = neighbour_examples(
      verifier_->teacher_embeddings(), verifier_->model_embeddings(), corpus_.heldout_texts);
  formats::Json analysis = make_analysis(*verifier_, *model_.encoder, results, entropy, examples);
  if (!fit_.is_null()) analysis["score_fit"] = fit_;
  const formats::Json maps = make_maps(encoder, corpus_, *teacher_.encoder, *model_.encoder);
  const formats::Json summary =
      make_summary(config_, *model_.encoder, results, progress_->section("seconds"),
                   head_tables(*verifier_, *model_.encoder));
  models::save_model(model_, config_.model, out_.path());
  write_file_atomically(out_.file("analysis.json"), formats::dump_json(analysis) + "\n");
  if (!maps.is_null())
    write_file_atomically(out_.file("maps.json"), formats::dump_json(maps) + "\n");
  write_file_atomically(out_.file("summary.json"), formats::dump_json(summary, 2) + "\n");
  if (before_rename) before_rename(out_.path());
  check_interrupt();
  out_.finish();
  return summary;
}

formats::Json Conversion::run(const std::function<void(const std::string&)>& before_rename) {
  measure("before", "before");
  distil();
  if (config_.distil.steps > 0) measure("after_distil", "after distillation");
  recover();
  measure("after", "after recovery");
  return write(before_rename);
}

}  // namespace

formats::Json run_conversion(const ConvertConfig& config,
                             const std::function<void(const std::string&)>& before_rename) {
  HEDGEROW_CHECK(std::filesystem::is_directory(config.model), "model: no such folder; got ",
                 config.model);
  OutFolder out(config.out, config.resume, config.force,
                {config.model, config.data, config.heldout});
  if (out.state() == OutFolder::State::complete) return nullptr;
  return Conversion(config, out).run(before_rename);
}

}  // namespace hedgerow::convert
