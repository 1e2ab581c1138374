#include "models/model_folder.h"

#include <algorithm>
#include <filesystem>

#include "base/atomic_file.h"
#include "formats/checkpoint.h"
#include "formats/config.h"
#include "formats/json.h"
#include "hedgerow/error.h"
#include "io/tensors.h"
#include "models/mixer_config.h"
#include "models/registry.h"

namespace hedgerow::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMixersMetadata = "hedgerow";  // the key of config.json, beside the tensors

// Parameters and buffers: everything that a checkpoint holds.
std::vector<io::NamedTensor> all_tensors(Encoder& encoder) {
  std::vector<io::NamedTensor> tensors;
  for (const auto& item : encoder.named_parameters()) tensors.push_back({item.key(), item.value()});
  for (const auto& item : encoder.named_buffers()) tensors.push_back({item.key(), item.value()});
  return tensors;
}

void check_folder(const std::string& folder) {
  std::error_code ignored;
  HEDGEROW_CHECK(fs::exists(folder, ignored), "model: no such folder; got ", folder);
  HEDGEROW_CHECK(fs::is_directory(folder, ignored), "model: a folder is needed; got the file ",
                 folder);
  HEDGEROW_CHECK(fs::exists(fs::path(folder) / "config.json", ignored), "model: folder ", folder,
                 " has no config.json");
}

// Puts the mixers of a converted folder in place of softmax.
void swap_mixers(const formats::Config& config, Encoder& encoder) {
  const bool converted = config.get_string("model_type").rfind(kConvertedPrefix, 0) == 0;
  HEDGEROW_CHECK(config.has(kHedgerowKey) == converted, config.where(), ": model_type ",
                 config.get_string("model_type"),
                 converted ? " needs the key " : " must not have the key ",
                 formats::quote(kHedgerowKey));
  if (!converted || encoder.num_layers() == 0) return;
  auto mixers = read_mixers(config.child(kHedgerowKey), encoder.num_layers(),
                            encoder.attention(0).shape().layout);
  for (int64_t i = 0; i < encoder.num_layers(); ++i) {
    encoder.attention(i).set_mixer_and_projections(mixers[static_cast<size_t>(i)]);
  }
}

// Tensors of two maps may have the same shapes, so that the weights say which one they are for.
// plain: the heads before any mixer took softmax's place.
void check_mixers(const formats::Config& config, const formats::Checkpoint& weights,
                  const nn::HeadLayout& plain, Encoder& encoder) {
  const auto stored = weights.metadata().find(kMixersMetadata);
  if (stored == weights.metadata().end()) return;
  const std::string where =
      concat(weights.files().front(), ": metadata ", formats::quote(kMixersMetadata));
  const formats::Config made(formats::parse_json(stored->second, where), where);
  const auto mixers = read_mixers(made, encoder.num_layers(), plain);
  const std::string difference = mixer_difference(encoder, mixers);
  HEDGEROW_CHECK(difference.empty(), config.where(),
                 ": the mixers must be those that the weights were made with; got ", difference);
}

void check_expected(const LoadOptions& options, const std::string& folder, Encoder& encoder) {
  for (int64_t i = 0; i < encoder.num_layers(); ++i) {
    const nn::Mixer& mixer = encoder.attention(i).mixer();
    if (mixer.kind() == "softmax") continue;
    for (const auto& [name, value] : options.expected) {
      const auto& has = mixer.options().values();
      const auto found = has.find(name);
      HEDGEROW_CHECK(found != has.end() && found->second == value, "model: ", folder, ": layer ", i,
                     " (", mixer.kind(), ") was made with ", name, " ",
                     found == has.end() ? "unset" : nn::to_string(found->second), "; asked for ",
                     nn::to_string(value));
    }
  }
}

// config.json for what the model is now; keys that we do not own stay as they were.
formats::Json updated_config(const formats::Config& source, Encoder& encoder,
                             const Architecture& type) {
  const bool converted = is_converted(encoder);
  formats::Json config = formats::Json::object();
  for (const auto& [key, value] : source.json().items()) {
    if (key != kHedgerowKey) config[key] = value;
  }
  config["model_type"] = (converted ? kConvertedPrefix : "") + type.model_type;
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (!config.contains(key)) continue;
    const auto parameters = encoder.parameters();
    const bool wide = !parameters.empty() && parameters[0].scalar_type() == at::kDouble;
    config[key] = wide ? "float64" : "float32";
  }
  if (converted) config[kHedgerowKey] = describe_mixers(encoder);
  return config;
}

// Tokenizer and pooling files travel with the model.
void copy_companions(const fs::path& source, const fs::path& folder) {
  constexpr const char* kFiles[] = {"tokenizer.json",
                                    "tokenizer_config.json",
                                    "special_tokens_map.json",
                                    "vocab.txt",
                                    "modules.json",
                                    "sentence_bert_config.json",
                                    "config_sentence_transformers.json"};
  std::vector<fs::path> names(std::begin(kFiles), std::end(kFiles));
  if (fs::exists(source / "modules.json")) {
    for (const formats::Json& module :
         formats::read_json_file((source / "modules.json").string())) {
      const fs::path config =
          fs::path(formats::Config(module, "modules.json").get_string_or("path", "")) /
          "config.json";
      // A module's folder lies inside the model's.
      const bool inside = config.is_relative() &&
                          std::find(config.begin(), config.end(), fs::path("..")) == config.end();
      if (inside && config.has_parent_path()) names.push_back(config);
    }
  }
  for (const fs::path& name : names) {
    if (!fs::is_regular_file(source / name)) continue;
    fs::create_directories((folder / name).parent_path());
    write_file_atomically((folder / name).string(), read_file((source / name).string()));
  }
}

}  // namespace

int64_t LoadedModel::max_tokens() const {
  const int64_t most = encoder->max_tokens();
  return pooling.max_length > 0 ? std::min(pooling.max_length, most) : most;
}

LoadedModel load_model(const std::string& folder, const LoadOptions& options) {
  check_folder(folder);
  HEDGEROW_CHECK(options.dtype == at::kFloat || options.dtype == at::kDouble,
                 "model: dtype must be float32 or float64; got ", c10::toString(options.dtype));
  const formats::Config config = formats::Config::load_folder(folder);
  const Architecture& type = find_architecture(config.get_string("model_type"), config.where());
  const formats::Checkpoint weights = formats::Checkpoint::open(folder);
  LoadedModel model;
  model.folder = folder;
  model.pooling = read_pooling(folder);
  model.encoder = std::make_shared<Encoder>(type.read_config(config, weights));
  Encoder& encoder = *model.encoder;
  const nn::HeadLayout plain =
      encoder.num_layers() == 0 ? nn::HeadLayout{} : encoder.attention(0).shape().layout;
  swap_mixers(config, encoder);
  check_expected(options, folder, encoder);
  check_mixers(config, weights, plain, encoder);
  encoder.to(options.dtype);
  const io::LoadRules rules{
      [&](const std::string& target) { return type.source(target, encoder.config()); },
      [&](const std::string& stored) { return type.may_ignore(stored, encoder.config()); }};
  io::load_tensors(weights, concat("model: ", folder), all_tensors(encoder), rules);
  for (int64_t i = 0; i < encoder.num_layers(); ++i) {
    try {
      encoder.attention(i).mixer().check_loaded();
    } catch (const Error& e) {
      throw Error(concat("model: ", folder, ": layer ", i, ": ", e.what()));
    }
  }
  share_parameters(encoder);
  encoder.eval();
  return model;
}

void save_model(const LoadedModel& model, const std::string& source_folder,
                const std::string& folder) {
  HEDGEROW_CHECK(fs::is_directory(folder), "save: the folder must exist; got ", folder);
  Encoder& encoder = *model.encoder;
  const Architecture& type = find_architecture(encoder.config().architecture, "save");
  const formats::Config source = formats::Config::load_folder(source_folder);
  std::vector<io::NamedTensor> tensors = all_tensors(encoder);
  for (io::NamedTensor& t : tensors) {
    HEDGEROW_CHECK(t.name.find(".lora_") == std::string::npos,
                   "save: low-rank updates must be merged first; got ", t.name);
  }
  for (io::NamedTensor& t : tensors) t.name = type.saved_name(t.name, encoder.config());
  formats::Metadata metadata = {{"format", "pt"}};
  if (is_converted(encoder))
    metadata[kMixersMetadata] = formats::dump_json(describe_mixers(encoder));
  const fs::path root(folder);
  copy_companions(source_folder, root);
  io::save_tensors((root / formats::kWeightsName).string(), tensors, metadata);
  write_file_atomically((root / "config.json").string(),
                        formats::dump_json(updated_config(source, encoder, type), 2) + "\n");
}

}  // namespace hedgerow::models
