// hedgerow convert: replaces the attention of a model and wins its quality back.
#include "convert/convert.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <sstream>

#include "cli/command.h"
#include "cli/typed_command.h"
#include "hedgerow/error.h"
#include "nn/precision.h"
#include "report/report.h"

namespace hedgerow::cli {
namespace {

struct ConvertOptions {
  convert::ConvertConfig config;
  std::string layers = "all", map, alpha, sharing, r, train_dtype = "auto";
  bool join = false, no_join = false;
  std::vector<std::string> set;
  // Not given: the preset's.
  std::optional<int64_t> key_heads, value_heads, positions, distil_steps, recover_steps, batch,
      length, lora, verify_texts;
  std::optional<double> distil_lr, recover_lr, hidden_weight, recut;
};

constexpr int64_t kMostLayers = 10000;  // as configs may have

// "0,2,5" or "0-3,5" or "all" (nothing).
std::vector<int64_t> parse_layers(const std::string& text) {
  std::vector<int64_t> layers;
  if (text == "all") return layers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int64_t first = 0, last = 0;
    char rest = 0;
    const int count = std::sscanf(part.c_str(), "%ld-%ld%c", &first, &last, &rest);
    const bool one = count == 1 && part.find_first_not_of("0123456789") == std::string::npos;
    HEDGEROW_CHECK((one || count == 2) && first >= 0 && (one || last >= first),
                   "--layers: must be all, or numbers and ranges like 0,2,4-5; got ", text);
    HEDGEROW_CHECK(std::max(first, last) < kMostLayers, "--layers: no model has ", kMostLayers,
                   " layers; got ", text);
    for (int64_t layer = first; layer <= (one ? first : last); ++layer)
      if (std::find(layers.begin(), layers.end(), layer) == layers.end()) layers.push_back(layer);
  }
  HEDGEROW_CHECK(!layers.empty(), "--layers: must name at least one layer; got an empty list");
  return layers;
}

// A value as text, as the option's type.
nn::OptionValue parse_value(const nn::OptionSpec& spec, const std::string& text) {
  if (std::holds_alternative<std::string>(spec.default_value)) return text;
  const auto fail = [&](const char* wanted) {
    return Error(concat("--set: ", spec.name, " must be ", wanted, "; got ", text));
  };
  if (std::holds_alternative<bool>(spec.default_value)) {
    if (text == "true" || text == "1") return true;
    if (text == "false" || text == "0") return false;
    throw fail("true or false");
  }
  std::istringstream in(text);
  if (std::holds_alternative<double>(spec.default_value)) {
    double value = 0;
    if (!(in >> value) || !(in >> std::ws).eof()) throw fail("a number");
    return value;
  }
  int64_t value = 0;
  if (!(in >> value) || !(in >> std::ws).eof()) throw fail("a whole number");
  return value;
}

// --set NAME=VALUE and --map against what the mechanism declares; missing options get defaults.
std::map<std::string, nn::OptionValue> mixer_options(const ConvertOptions& options) {
  const nn::MixerType& type = nn::mixer_type(options.config.kind);
  std::map<std::string, nn::OptionValue> given;
  if (convert::preset(options.config.preset).thorough_options) given = type.thorough_options;
  std::vector<std::string> all = options.set;
  if (!options.map.empty()) all.push_back("map=" + options.map);
  if (!options.alpha.empty()) all.push_back("alpha=" + options.alpha);
  if (options.positions) all.push_back(concat("positions_per_query=", *options.positions));
  if (!options.sharing.empty()) all.push_back("sharing=" + options.sharing);
  if (!options.r.empty()) all.push_back("r=" + options.r);
  if (options.key_heads) all.push_back(concat("key_heads=", *options.key_heads));
  if (options.value_heads) all.push_back(concat("value_heads=", *options.value_heads));
  for (const std::string& item : all) {
    const size_t equals = item.find('=');
    HEDGEROW_CHECK(equals != std::string::npos && equals > 0, "--set: must be NAME=VALUE; got ",
                   item);
    const std::string name = item.substr(0, equals);
    std::string known;
    const nn::OptionSpec* found = nullptr;
    for (const nn::OptionSpec& spec : type.options) {
      known += (known.empty() ? "" : ", ") + spec.name;
      if (spec.name == name) found = &spec;
    }
    HEDGEROW_CHECK(found != nullptr, "--set: ", type.kind, " has the options ",
                   known.empty() ? "(none)" : known, "; got ", name);
    given[name] = parse_value(*found, item.substr(equals + 1));
  }
  return nn::Options(type.kind, type.options, given).values();
}

template <typename T, typename U>
void take(const std::optional<T>& given, U& target, T low, const char* name) {
  if (!given) return;
  HEDGEROW_CHECK(*given >= low, name, ": must be at least ", low, "; got ", *given);
  target = static_cast<U>(*given);
}

void take_rate(const std::optional<double>& given, double& target, const char* name) {
  if (!given) return;
  HEDGEROW_CHECK(*given > 0 && *given < 1e3, name, ": must be above 0 and below 1000; got ",
                 *given);
  target = *given;
}

convert::ConvertConfig resolve(const CommonOptions& common, const ConvertOptions& options) {
  convert::ConvertConfig config = options.config;
  const convert::Preset& preset = convert::preset(config.preset);
  config.distil = preset.distil;
  config.recover = preset.recover;
  config.verify = preset.verify;
  config.options = mixer_options(options);
  config.layers = parse_layers(options.layers);
  config.distil.lr = nn::mixer_type(config.kind).start_lr;
  take<int64_t>(options.distil_steps, config.distil.steps, 0, "--distil-steps");
  take<int64_t>(options.recover_steps, config.recover.steps, 0, "--recover-steps");
  take<int64_t>(options.batch, config.recover.batch, 1, "--batch");
  take<int64_t>(options.length, config.recover.length, 3, "--length");
  config.recover.fit_length = !options.length;
  config.recover.fit_batch = !options.batch;
  HEDGEROW_CHECK(!options.join || !options.no_join, "--join: not beside --no-join; got both");
  config.join = options.join || (nn::mixer_type(config.kind).one_length && !options.no_join);
  take<int64_t>(options.lora, config.recover.lora_rank, 0, "--lora");
  take<int64_t>(options.verify_texts, config.verify.texts, 1, "--verify-texts");
  const std::string& dtype = options.train_dtype;
  HEDGEROW_CHECK(dtype == "auto" || dtype == "float32" || dtype == "bfloat16",
                 "--train-dtype: must be auto, float32 or bfloat16; got ", dtype);
  config.distil.bfloat16 = config.recover.bfloat16 =
      dtype == "bfloat16" || (dtype == "auto" && nn::has_fast_bfloat16());
  take_rate(options.distil_lr, config.distil.lr, "--distil-lr");
  take_rate(options.recover_lr, config.recover.lr, "--recover-lr");
  const double hidden = options.hidden_weight.value_or(config.recover.hidden_weight);
  HEDGEROW_CHECK(hidden >= 0 && hidden < 1e3, "--hidden-weight: must be in [0, 1000); got ",
                 hidden);
  config.recover.hidden_weight = hidden;
  const double recut = options.recut.value_or(config.recover.recut);
  HEDGEROW_CHECK(recut >= 0 && recut <= 1, "--recut: must be in [0, 1]; got ", recut);
  config.recover.recut = recut;
  config.seed = common.seed;
  config.threads = at::get_num_threads();
  config.quiet = common.quiet;
  config.command = typed_command();
  return config;
}

int run(const CommonOptions& common, const ConvertOptions& options) {
  HEDGEROW_CHECK(common.dtype == "float32", "--dtype: convert works in float32; got ",
                 common.dtype);
  const convert::ConvertConfig config = resolve(common, options);
  const formats::Json summary = convert::run_conversion(
      config, [](const std::string& folder) { report::write_report(folder); });
  if (common.json) {
    std::printf("%s\n", formats::dump_json(summary).c_str());
  } else if (summary.is_null()) {
    if (!common.quiet)
      std::printf(
          "%s is complete: nothing to do (run.toml has its settings, --force makes it anew)\n",
          config.out.c_str());
  } else if (!common.quiet) {
    std::printf("written to %s\n", config.out.c_str());
  }
  return 0;
}

}  // namespace

RunCommand add_convert(CLI::App& command) {
  auto options = std::make_shared<ConvertOptions>();
  convert::ConvertConfig& config = options->config;
  std::string kinds, presets;
  for (const nn::MixerType& type : nn::mixer_types())
    kinds += (kinds.empty() ? "" : ", ") + type.kind;
  for (const convert::Preset& p : convert::presets())
    presets += concat(presets.empty() ? "" : "; ", p.name, ": ", p.summary);
  command.add_option("model", config.model, "folder of the model to convert")
      ->required()
      ->type_name("MODEL");
  command.add_option("--to", config.kind, "mechanism: " + kinds)->required()->type_name("KIND");
  command.add_option("--data", config.data, "text, UTF-8, one a line")
      ->required()
      ->type_name("FILE");
  command
      .add_option("--heldout", config.heldout, "text never trained on (default: a tenth of --data)")
      ->type_name("FILE");
  command.add_option("--column", config.column, "column of a .tsv file, from 1")->type_name("N");
  command.add_option("--out", config.out, "folder to write")->required()->type_name("OUT");
  command.add_option("--map", options->map, "feature map; the same as --set map=NAME")
      ->type_name("NAME");
  command
      .add_option("--alpha", options->alpha,
                  "alpha of entmax, learned or a number; the same as --set alpha=VALUE")
      ->type_name("VALUE");
  command.add_option("--key-heads", options->key_heads,
                     "heads of q and k with talking heads; the same as --set key_heads=N");
  command.add_option("--value-heads", options->value_heads,
                     "heads of v with talking heads; the same as --set value_heads=N");
  command.add_option("--positions-per-query", options->positions,
                     "keys that a query meets in partial attention and what it is compared with; "
                     "the same as --set positions_per_query=N");
  command
      .add_option("--sharing", options->sharing,
                  "what has a reconstruction of its own in partial attention, layer, shared or "
                  "head; the same as --set sharing=NAME")
      ->type_name("NAME");
  command
      .add_option("--r", options->r,
                  "reconstruction of partial attention, fixed or learned; the same as --set r=NAME")
      ->type_name("NAME");
  command.add_flag("--join", options->join,
                   "train and verify on windows of running text (default: with mechanisms made for "
                   "one length)");
  command.add_flag("--no-join", options->no_join, "train and verify text by text");
  command.add_option("--set", options->set, "option of the mechanism")->type_name("NAME=VALUE");
  command.add_option("--layers", options->layers, "all, or numbers and ranges: 0,2,4-5")
      ->capture_default_str();
  command.add_option("--preset", config.preset, presets)->capture_default_str();
  command.add_option("--distil-steps", options->distil_steps,
                     "steps of attention distillation; 0: none");
  command.add_option("--recover-steps", options->recover_steps, "steps of recovery; 0: none");
  command.add_option("--distil-lr", options->distil_lr, "learning rate of distillation");
  command.add_option("--recover-lr", options->recover_lr, "learning rate of recovery");
  command.add_option("--hidden-weight", options->hidden_weight,
                     "weight of the hidden states' loss beside the embeddings' in recovery (1)");
  command.add_option("--recut", options->recut,
                     "share of texts that from the second pass over the data on give way to "
                     "running text from a random place, in recovery");
  command.add_option("--batch", options->batch, "texts in a batch of recovery");
  command.add_option("--length", options->length, "tokens of a text in recovery, the rest is cut");
  command.add_option("--lora", options->lora,
                     "rank of low-rank updates in recovery; 0: train all weights");
  command
      .add_option("--train-dtype", options->train_dtype,
                  "what linear layers multiply while training: auto (bfloat16 where this CPU is "
                  "faster with it), float32 or bfloat16")
      ->capture_default_str();
  command.add_option("--verify-texts", options->verify_texts, "held-out texts to verify with");
  command.add_flag("--resume", config.resume, "continue an interrupted run");
  command.add_flag("--force", config.force, "replace OUT once the new one is complete");
  return [options](const CommonOptions& common) { return run(common, *options); };
}

}  // namespace hedgerow::cli
