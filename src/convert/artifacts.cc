#include "convert/artifacts.h"

#include <ATen/ATen.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "analysis/attention_maps.h"
#include "analysis/head_matrices.h"
#include "analysis/head_statistics.h"
#include "hedgerow/version.h"
#include "metrics/attention_cost.h"
#include "metrics/statistics.h"
#include "models/head_values.h"

namespace hedgerow::convert {
namespace {

constexpr double kLowestCosine = 0;
constexpr int64_t kCosineBins = 100;
constexpr int64_t kNumExamples = 8, kNumNeighbours = 5;
constexpr int64_t kNumMapTexts = 8, kMapTokens = 96, kPassageTokens = 160;

formats::Json cosine_counts(const std::vector<double>& cosines) {
  metrics::Histogram histogram = metrics::histogram(cosines, kLowestCosine, 1.0, kCosineBins);
  histogram.counts.front() += histogram.below;
  histogram.counts.back() += histogram.above;  // 1 + rounding
  return histogram.counts;
}

formats::Json cosine_edges() {
  formats::Json edges = formats::Json::array();
  for (int64_t i = 0; i <= kCosineBins; ++i)
    edges.push_back(kLowestCosine + (1.0 - kLowestCosine) * static_cast<double>(i) /
                                        static_cast<double>(kCosineBins));
  return edges;
}

models::EncoderInput one_text(const std::vector<int64_t>& ids) {
  models::EncoderInput input;
  input.input_ids = at::tensor(ids, at::kLong).unsqueeze(0);
  return input;
}

formats::Json map_of(const TextEncoder& encoder, const std::string& text,
                     const std::vector<int64_t>& ids, models::Encoder& teacher,
                     models::Encoder& model) {
  const models::EncoderInput input = one_text(ids);
  const analysis::AttentionMaps theirs = analysis::attention_maps(teacher, input);
  const analysis::AttentionMaps ours = analysis::attention_maps(model, input);
  formats::Json tokens = formats::Json::array();
  for (int64_t id : ids) tokens.push_back(encoder.token(id));
  return {{"text", text},
          {"tokens", tokens},
          {"size", ours.size},
          {"bin", ours.bin},
          {"teacher", analysis::base64(theirs.bytes)},
          {"model", analysis::base64(ours.bytes)}};
}

// [[..out] ..in] of each layer, null in layers without.
formats::Json layers_json(const std::vector<at::Tensor>& matrices) {
  formats::Json layers = formats::Json::array();
  for (const at::Tensor& matrix : matrices) {
    if (!matrix.defined()) {
      layers.push_back(nullptr);
      continue;
    }
    analysis::HeadTable rows;
    for (int64_t i = 0; i < matrix.size(0); ++i) {
      const double* row = matrix.const_data_ptr<double>() + i * matrix.size(1);
      rows.emplace_back(row, row + matrix.size(1));
    }
    layers.push_back(as_json(rows));
  }
  return layers;
}

void add_head_matrices(formats::Json& analysis, models::Encoder& model) {
  for (const auto& [name, matrices] : analysis::head_matrices(model)) {
    const formats::Json measures = as_json({matrices.effective_rank, matrices.identity_distance});
    analysis["head_matrices"][name] = layers_json(matrices.values);
    analysis["head_mixing"][name] = {{"effective_rank", measures[0]},
                                     {"identity_distance", measures[1]}};
  }
}

}  // namespace

std::string display_name(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path folder = std::filesystem::weakly_canonical(path, ignored);
  if (folder.filename().empty()) folder = folder.parent_path();
  if (folder.filename() == "model" && folder.has_parent_path()) folder = folder.parent_path();
  return folder.filename().empty() ? "model" : folder.filename().string();
}

formats::Json measured(const Measures& measures) {
  return {{"measures", as_json(measures)},
          {"kl_by_head", as_json(measures.kl_by_head)},
          {"own_kl_by_head", as_json(measures.own_kl_by_head)},
          {"cosine_counts", cosine_counts(measures.embedding.cosines)}};
}

formats::Json head_tables(const Verifier& verifier, models::Encoder& model) {
  formats::Json heads = formats::Json::object();
  for (const auto& [name, table] : models::head_values(model)) heads[name] = as_json(table);
  bool sparse = false;
  for (int64_t layer = 0; layer < model.num_layers(); ++layer)
    sparse |= !nn::mixer_type(model.attention(layer).mixer().kind()).imitates_softmax;
  if (!sparse || verifier.report_length() == 0) return heads;
  std::vector<analysis::StatisticsInput> inputs;
  for (const models::EncoderInput& input : verifier.windows().begin()->second)
    inputs.push_back({input, {}});
  const analysis::HeadStatistics statistics = analysis::head_statistics(model, inputs);
  heads["length"] = verifier.report_length();
  heads["density"] = as_json(statistics.density);
  heads["mean_density"] = analysis::mean_over_layers(statistics.density);
  heads["diversity"] = statistics.diversity;
  return heads;
}

namespace {

// Multiplications of a layer with a budget of keys, at the length that it is made for, as shares of
// exact attention's; null for other mechanisms.
formats::Json multiplications(const ConvertConfig& config, models::Encoder& model) {
  const auto& options = config.options;
  if (options.count("positions_per_query") == 0) return nullptr;
  const int64_t count = std::get<int64_t>(options.at("positions_per_query")),
                length = std::get<int64_t>(options.at("length"));
  const nn::HeadLayout& heads = model.attention(0).mixer().layout();
  const metrics::AttentionSizes sizes{length,         length,          heads.heads,
                                      heads.head_dim, heads.value_dim, model.config().hidden_size};
  metrics::AttentionCost cost = metrics::partial_cost(sizes, count);
  if (config.kind == "linformer") cost = metrics::linformer_cost(sizes, count);
  if (config.kind == "selected-keys") cost = metrics::selected_keys_cost(sizes, count);
  if (config.kind == "window") cost = metrics::window_cost(sizes, count);
  const auto positions = options.find("positions");
  if (positions != options.end() && nn::to_string(positions->second) != "common")
    cost = metrics::own_positions_cost(sizes, count);
  const metrics::AttentionShares shares = metrics::shares_of(cost, metrics::exact_cost(sizes));
  return {{"length", length},
          {"scores", shares.scores},
          {"core", shares.core},
          {"layer", shares.layer}};
}

}  // namespace

formats::Json make_summary(const ConvertConfig& config, models::Encoder& model,
                           const formats::Json& results, const formats::Json& seconds,
                           const formats::Json& heads) {
  formats::Json summary = {{"format", 1}, {"kind", config.kind}};
  const auto map = config.options.find("map");
  if (map != config.options.end()) summary["map"] = nn::to_string(map->second);
  const models::EncoderConfig& c = model.config();
  summary["model"] = {{"name", display_name(config.model)},
                      {"architecture", c.architecture},
                      {"layers", c.num_layers},
                      {"heads", c.num_heads},
                      {"hidden", c.hidden_size}};
  if (!heads.empty()) summary["heads"] = heads;
  const formats::Json saved = multiplications(config, model);
  if (!saved.is_null()) summary["multiplications"] = saved;
  for (const auto& [stage, result] : results.items()) summary[stage] = result.at("measures");
  summary["seconds"] = seconds;
  summary["preset"] = config.preset;
  summary["seed"] = config.seed;
  summary["threads"] = config.threads;
  summary["command"] = config.command;
  summary["versions"] = {{"hedgerow", version()}, {"torch", TORCH_VERSION}};
  return summary;
}

formats::Json make_analysis(const Verifier& verifier, models::Encoder& model,
                            const formats::Json& results, const formats::Json& entropy,
                            const formats::Json& examples) {
  formats::Json kl = {{"length", verifier.report_length()}};
  formats::Json histogram = {{"edges", cosine_edges()}};
  bool compared = false;
  for (const auto& [stage, result] : results.items()) {
    kl[stage] = result.at("kl_by_head");
    compared |= !kl[stage].empty();
    histogram[stage] = result.at("cosine_counts");
  }
  if (results.contains("after"))
    kl["after, its own queries and keys"] = results.at("after").at("own_kl_by_head");
  formats::Json analysis = formats::Json::object();
  if (verifier.report_length() > 0) {
    if (compared) analysis["kl"] = kl;
    analysis["entropy"] = compared ? entropy : formats::Json{{"model", entropy.at("model")}};
  }
  analysis["embedding"] = {{"cosine_histogram", histogram}, {"neighbour_examples", examples}};
  add_head_matrices(analysis, model);
  return analysis;
}

formats::Json entropy_tables(const Verifier& verifier, models::Encoder& teacher,
                             models::Encoder& model) {
  if (verifier.report_length() == 0) return nullptr;
  const auto& inputs = verifier.windows().begin()->second;
  return {{"teacher", as_json(analysis::entropy(teacher, inputs))},
          {"model", as_json(analysis::entropy(model, inputs))}};
}

formats::Json neighbour_examples(const at::Tensor& teacher, const at::Tensor& model,
                                 const std::vector<std::string>& texts) {
  formats::Json examples = formats::Json::array();
  const int64_t num_texts = static_cast<int64_t>(texts.size());
  if (num_texts <= kNumNeighbours) return examples;
  const auto theirs = analysis::nearest_texts(teacher, kNumNeighbours);
  const auto ours = analysis::nearest_texts(model, kNumNeighbours);
  const auto named = [&](const std::vector<int64_t>& rows) {
    formats::Json list = formats::Json::array();
    for (int64_t row : rows) list.push_back(texts[row]);
    return list;
  };
  const int64_t count = std::min(kNumExamples, num_texts);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t query = i * num_texts / count;
    examples.push_back({{"query", texts[query]},
                        {"teacher", named(theirs[query])},
                        {"model", named(ours[query])}});
  }
  return examples;
}

formats::Json make_maps(const TextEncoder& encoder, const Corpus& corpus, models::Encoder& teacher,
                        models::Encoder& model) {
  if (!same_heads(teacher, model)) return nullptr;  // maps show heads side by side
  formats::Json sentences = formats::Json::array();
  const int64_t num_texts = static_cast<int64_t>(corpus.heldout.size());
  const int64_t count = std::min(kNumMapTexts, num_texts);
  const int64_t most = std::min(teacher.max_tokens(), model.max_tokens());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = i * num_texts / count;
    const std::vector<int64_t> ids =
        encoder.wrap(body_of(corpus, corpus.heldout[row]), std::min(kMapTokens, most)).ids;
    sentences.push_back(map_of(encoder, corpus.heldout_texts[row], ids, teacher, model));
  }
  // Running text as one long input.
  std::vector<int64_t> body;
  std::string text;
  const int64_t wanted = std::min(kPassageTokens, most);
  for (int64_t i = 0; i < num_texts && static_cast<int64_t>(body.size()) < wanted; ++i) {
    const std::vector<int64_t> next = body_of(corpus, corpus.heldout[i]);
    body.insert(body.end(), next.begin(), next.end());
    text += (text.empty() ? "" : " ") + corpus.heldout_texts[i];
  }
  sentences.push_back(map_of(encoder, text, encoder.wrap(body, wanted).ids, teacher, model));
  return {{"scale", "sqrt"},
          {"layers", model.num_layers()},
          {"heads", model.config().num_heads},
          {"sentences", sentences}};
}

}  // namespace hedgerow::convert
