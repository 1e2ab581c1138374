// hedgerow analyze: what the heads of a model do on text. docs/RUN_FOLDER.md describes the files.
#include <ATen/ATen.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "analysis/attention_maps.h"
#include "analysis/head_statistics.h"
#include "base/atomic_file.h"
#include "base/interrupt.h"
#include "base/timer.h"
#include "cli/model_options.h"
#include "cli/spectra.h"
#include "cli/typed_command.h"
#include "convert/corpus.h"
#include "convert/out_folder.h"
#include "convert/verify.h"
#include "data/text.h"
#include "hedgerow/error.h"
#include "hedgerow/version.h"
#include "report/report.h"
#include "train/progress.h"

namespace hedgerow::cli {
namespace {

constexpr int64_t kTextsPerPass = 8;
constexpr int64_t kMapTokens = 64;

struct AnalyzeOptions {
  std::string model, data, out;
  std::string what = "heads";
  int64_t column = 0, num_texts = 500, length = 0, reach = 5, num_examples = 8;
  bool force = false;
  SpectraOptions spectra;
};

struct Texts {
  std::vector<std::string> texts;  // those with a token
  std::vector<data::Sequence> sequences;
  std::vector<std::vector<std::string>> tokens;
  int64_t num_tokens = 0;
};

void check_options(const AnalyzeOptions& options) {
  HEDGEROW_CHECK(options.num_texts >= 1, "--texts: must be at least 1; got ", options.num_texts);
  HEDGEROW_CHECK(options.length >= 0, "--length: must be at least 1; got ", options.length);
  HEDGEROW_CHECK(options.reach >= 1, "--offsets: must be at least 1; got ", options.reach);
  HEDGEROW_CHECK(options.num_examples >= 0, "--examples: must be at least 0; got ",
                 options.num_examples);
  HEDGEROW_CHECK(!options.force || !options.out.empty(), "--force: needs --out; got none");
}

// Tokens that a text is cut to: what is asked for, what the folder says, what the model has.
int64_t length_limit(const AnalyzeOptions& options, const models::LoadedModel& model) {
  const int64_t positions = model.encoder->config().max_positions;
  HEDGEROW_CHECK(options.length <= positions, "--length: must be at most the model's ", positions,
                 " positions; got ", options.length);
  if (options.length > 0) return options.length;
  return model.max_tokens();
}

Texts read_data(const AnalyzeOptions& options, const convert::TextEncoder& encoder,
                int64_t length) {
  Texts out;
  for (std::string& text :
       data::read_texts(options.data, data::read_options(options.data, options.column))) {
    if (static_cast<int64_t>(out.texts.size()) == options.num_texts) break;
    check_interrupt();
    const std::vector<int64_t> body = encoder.body(text);
    if (body.empty()) continue;
    out.texts.push_back(std::move(text));
    out.sequences.push_back(encoder.wrap(body, length));
    std::vector<std::string> names;
    for (const int64_t id : out.sequences.back().ids) names.push_back(encoder.token(id));
    out.num_tokens += static_cast<int64_t>(names.size());
    out.tokens.push_back(std::move(names));
  }
  HEDGEROW_CHECK(!out.texts.empty(), options.data, ": a text must have tokens; got none with some");
  return out;
}

analysis::HeadStatistics measure(models::LoadedModel& model, const Texts& texts, int64_t reach,
                                 bool quiet) {
  std::vector<analysis::StatisticsInput> inputs;
  const int64_t pad = model.encoder->config().pad_token_id;
  std::vector<int64_t> done = {0};
  for (const auto& rows : data::batches_by_length(data::lengths(texts.sequences), kTextsPerPass)) {
    const data::Batch batch = data::make_batch(texts.sequences, rows, pad);
    analysis::StatisticsInput input;
    input.input = {batch.input_ids, batch.attention_mask, batch.token_type_ids, {}};
    for (const int64_t row : rows)
      input.groups.push_back(analysis::subword_groups(texts.tokens[row]));
    inputs.push_back(std::move(input));
    done.push_back(done.back() + static_cast<int64_t>(rows.size()));
  }
  train::Progress progress("analyze", static_cast<int64_t>(texts.texts.size()), quiet);
  analysis::HeadStatisticsOptions options;
  options.reach = reach;
  return analysis::head_statistics(*model.encoder, inputs, options,
                                   [&](int64_t i) { progress.update(done[i]); });
}

formats::Json as_json(const std::vector<analysis::NamedHead>& heads, bool with_offset) {
  formats::Json list = formats::Json::array();
  for (const analysis::NamedHead& head : heads) {
    formats::Json item = {{"layer", head.layer}, {"head", head.head}};
    if (with_offset) item["offset"] = head.offset;
    item["weight"] = formats::finite_or_null(head.weight);
    list.push_back(item);
  }
  return list;
}

formats::Json describe_statistics(const analysis::HeadStatistics& s) {
  formats::Json out = formats::Json::object();
  out["density"] = convert::as_json(s.density);
  formats::Json edges = formats::Json::array();
  const size_t bins = s.density_counts.empty() ? 0 : s.density_counts.front().size();
  for (size_t i = 0; i <= bins; ++i)
    edges.push_back(static_cast<double>(i) / static_cast<double>(std::max<size_t>(bins, 1)));
  out["density_histogram"] = {{"edges", edges}, {"counts", s.density_counts}};
  out["entropy"] = convert::as_json(s.entropy);
  out["diversity"] = formats::Json::array();
  for (const double value : s.diversity) out["diversity"].push_back(formats::finite_or_null(value));
  out["uniform_weight"] = formats::finite_or_null(s.uniform_weight);
  out["offsets"] = s.offsets;
  out["at_offset"] = formats::Json::array();
  for (const analysis::HeadTable& table : s.at_offset)
    out["at_offset"].push_back(convert::as_json(table));
  out["positional_heads"] = as_json(analysis::positional_heads(s), true);
  out["subword_merging"] = s.num_groups > 0 ? convert::as_json(s.subword_merging) : formats::Json();
  out["subword_merging_heads"] = as_json(analysis::subword_merging_heads(s), false);
  out["head_values"] = formats::Json::object();
  for (const auto& [name, table] : s.head_values)
    out["head_values"][name] = convert::as_json(table);
  return out;
}

// Some texts over the file, cut, with the weights of all heads.
formats::Json example_maps(const AnalyzeOptions& options, const Texts& texts,
                           models::Encoder& model) {
  formats::Json sentences = formats::Json::array();
  const int64_t num_texts = static_cast<int64_t>(texts.texts.size());
  const int64_t count = std::min(options.num_examples, num_texts);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = i * num_texts / count;
    // The end of a longer text is left out, its last special token with it.
    const auto length = std::min<int64_t>(kMapTokens, texts.sequences[row].ids.size());
    const std::vector<int64_t> ids(texts.sequences[row].ids.begin(),
                                   texts.sequences[row].ids.begin() + length);
    models::EncoderInput input;
    input.input_ids = at::tensor(ids, at::kLong).unsqueeze(0);
    const analysis::AttentionMaps maps =
        analysis::attention_maps(model, input, kMapTokens, /*keep_zeros=*/true);
    const std::vector<std::string> tokens(texts.tokens[row].begin(),
                                          texts.tokens[row].begin() + length);
    sentences.push_back({{"text", texts.texts[row]},
                         {"tokens", tokens},
                         {"size", maps.size},
                         {"bin", maps.bin},
                         {"model", analysis::base64(maps.bytes)}});
  }
  formats::Json heads = formats::Json::array();
  for (int64_t layer = 0; layer < model.num_layers(); ++layer)
    heads.push_back(model.attention(layer).mixer().layout().heads);
  return {{"scale", "sqrt"},
          {"sides", formats::Json::array({"model"})},
          {"zeros", "exact"},
          {"heads", heads},
          {"sentences", sentences}};
}

// How the heads' values came about, where the model's folder is that of a run.
void copy_head_values(const std::string& model, const convert::OutFolder& out) {
  constexpr char kName[] = "head_values.jsonl";
  const std::string log = (std::filesystem::path(model) / kName).string();
  std::error_code ignored;
  if (std::filesystem::exists(log, ignored)) write_file_atomically(out.file(kName), read_file(log));
}

void write_folder(const std::string& model, const formats::Json& heads, const formats::Json& maps,
                  convert::OutFolder& out) {
  out.prepare();
  try {
    copy_head_values(model, out);
    write_file_atomically(out.file("heads.json"), formats::dump_json(heads, 1) + "\n");
    write_file_atomically(out.file("maps.json"), formats::dump_json(maps) + "\n");
    report::write_report(out.path());
    check_interrupt();
    out.finish();
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(out.path(), ignored);
    throw;
  }
}

std::string mean_of(const std::vector<double>& heads) {
  const double mean = analysis::mean_over_layers({heads});
  char text[32];
  std::snprintf(text, sizeof text, std::isfinite(mean) ? "%9.3f" : "        -", mean);
  return text;
}

void print_heads(const char* title, const std::vector<analysis::NamedHead>& heads, bool offset) {
  if (heads.empty()) return;
  std::printf("%s", title);
  for (size_t i = 0; i < std::min<size_t>(5, heads.size()); ++i) {
    std::printf("%s%lld.%lld", i == 0 ? "" : ", ", static_cast<long long>(heads[i].layer + 1),
                static_cast<long long>(heads[i].head + 1));
    if (offset) std::printf(" (%+lld)", static_cast<long long>(heads[i].offset));
    std::printf(" %.2f", heads[i].weight);
  }
  std::printf("\n");
}

void print(const analysis::HeadStatistics& s) {
  std::printf("layer   density  entropy diversity");
  for (const auto& [name, table] : s.head_values) std::printf(" %9s", name.c_str());
  std::printf("\n");
  for (size_t layer = 0; layer < s.density.size(); ++layer) {
    std::printf("%5zu %s%s %s", layer + 1, mean_of(s.density[layer]).c_str(),
                mean_of(s.entropy[layer]).c_str(), mean_of({s.diversity[layer]}).c_str());
    for (const auto& [name, table] : s.head_values)
      std::printf(" %s", mean_of(table[layer]).c_str());
    std::printf("\n");
  }
  print_heads("strongest at one offset   ", analysis::positional_heads(s), true);
  print_heads("strongest within words    ", analysis::subword_merging_heads(s), false);
  std::printf("means over heads; layer.head are counted from 1; %lld texts, %lld tokens\n",
              static_cast<long long>(s.num_texts), static_cast<long long>(s.num_queries));
}

int run(const CommonOptions& common, const AnalyzeOptions& options) {
  check_options(options);
  std::unique_ptr<convert::OutFolder> out;
  if (!options.out.empty())
    out = std::make_unique<convert::OutFolder>(options.out, /*resume=*/false, options.force,
                                               std::vector{options.model, options.data});
  const Timer timer;
  models::LoadedModel model = load_model(options.model, common);
  const int64_t length = length_limit(options, model);
  const Texts texts = read_data(options, convert::TextEncoder(options.model), length);
  const analysis::HeadStatistics statistics =
      measure(model, texts, options.reach, common.quiet || common.json);
  formats::Json heads = {{"format", 1}, {"model", describe_model(options.model, *model.encoder)}};
  heads["data"] = {{"file", std::filesystem::path(options.data).filename().string()},
                   {"texts", statistics.num_texts},
                   {"tokens", statistics.num_queries},
                   {"length", length},
                   {"subword_groups", statistics.num_groups}};
  heads.update(describe_statistics(statistics));
  if (out) {
    const formats::Json maps = example_maps(options, texts, *model.encoder);
    heads["seconds"] = timer.seconds();
    heads["command"] = typed_command();
    heads["versions"] = {{"hedgerow", version()}, {"torch", TORCH_VERSION}};
    write_folder(options.model, heads, maps, *out);
  }
  if (common.json) {
    std::printf("%s\n", formats::dump_json(heads).c_str());
  } else {
    if (!out || !common.quiet) print(statistics);
    if (out && !common.quiet) std::printf("written to %s\n", options.out.c_str());
  }
  return 0;
}

}  // namespace

RunCommand add_analyze(CLI::App& command) {
  auto options = std::make_shared<AnalyzeOptions>();
  command.add_option("model", options->model, "model folder")->required()->type_name("MODEL");
  command.add_option("--data", options->data, "text, UTF-8, one a line")
      ->required()
      ->type_name("FILE");
  command.add_option("--column", options->column, "column of a .tsv file, from 1")->type_name("N");
  command
      .add_option("--what", options->what,
                  "heads: density, entropy, diversity, roles; spectra: principal components of "
                  "scores, overlap of layers, positions that tell most")
      ->check(CLI::IsMember({"heads", "spectra"}))
      ->capture_default_str();
  command
      .add_option("--out", options->out,
                  "folder to write: heads.json and maps.json, or spectra.json; report.html")
      ->type_name("OUT");
  command.add_flag("--force", options->force, "replace OUT when the new one is complete");
  const std::vector<CLI::Option*> of_heads = {
      command.add_option("--texts", options->num_texts, "texts to read, the first ones")
          ->capture_default_str(),
      command
          .add_option("--length", options->length,
                      "tokens a text is cut to (default: as the folder says)")
          ->type_name("N"),
      command.add_option("--offsets", options->reach, "how far to look for positional heads")
          ->capture_default_str(),
      command.add_option("--examples", options->num_examples, "texts to show maps of")
          ->capture_default_str()};
  SpectraOptions& spectra = options->spectra;
  const std::vector<CLI::Option*> of_spectra = {
      command.add_option("--n", spectra.length, "spectra: tokens of a window, scores of a row")
          ->capture_default_str(),
      command
          .add_option("--windows", spectra.num_windows,
                      "spectra: windows of running text, spread over the file")
          ->capture_default_str(),
      command
          .add_option("--positions", spectra.positions,
                      "spectra: numbers of components and positions to report")
          ->delimiter(',')
          ->capture_default_str(),
      command.add_option("--against", spectra.against, "spectra: another model to compare with")
          ->type_name("MODEL2"),
      command.add_option("--matrices", spectra.matrix_rank,
                         "spectra: components of whole score matrices too, as many; 0: none"),
      command.add_flag("--by-query", spectra.by_query,
                       "spectra: positions of each query position by itself too"),
      command.add_flag("--resume", spectra.resume, "spectra: continue an interrupted run")};
  return [=](const CommonOptions& common) {
    const bool is_spectra = options->what == "spectra";
    for (const CLI::Option* option : is_spectra ? of_heads : of_spectra)
      HEDGEROW_CHECK(option->count() == 0, option->get_name(), ": not with --what ", options->what);
    if (!is_spectra) return run(common, *options);
    SpectraOptions wanted = options->spectra;
    wanted.model = options->model;
    wanted.data = options->data;
    wanted.out = options->out;
    wanted.column = options->column;
    wanted.force = options->force;
    return run_spectra(common, wanted);
  };
}

}  // namespace hedgerow::cli
