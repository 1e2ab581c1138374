// hedgerow info: what a model folder or a safetensors file holds. Checks all headers, and a folder
// of a known architecture by loading it; needs neither a tokenizer nor a config.json.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "formats/checkpoint.h"
#include "formats/config.h"
#include "formats/json.h"
#include "hedgerow/error.h"
#include "models/model_folder.h"
#include "models/registry.h"

namespace hedgerow::cli {
namespace {

namespace fs = std::filesystem;
using formats::Config;
using formats::Json;
using formats::TensorView;

int64_t num_elements(const TensorView& tensor) {
  return tensor.num_bytes * 8 / formats::dtype_bits(tensor.dtype);
}

// The number in a name like encoder.layer.3.output.dense.weight, or -1.
int64_t layer_of(const std::string& name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!part.empty() && part.size() <= 9 &&
        part.find_first_not_of("0123456789") == std::string::npos)
      return std::stoll(part);
    begin = end + 1;
  }
  return -1;
}

std::string first_key(const Config& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (config.has(key)) return key;
  return "";
}

// One object a layer: the mixer and its settings (softmax unless the folder was converted), and how
// many numbers the layer's tensors hold.
Json describe_layers(const Config& config, const formats::Checkpoint& checkpoint) {
  const std::string key = first_key(config, {"num_hidden_layers", "n_layer", "num_layers"});
  Json layers = Json::array();
  if (key.empty()) return layers;
  constexpr int64_t kMaxLayers = 100'000;
  const int64_t count = config.get_int_in(key, 0, kMaxLayers);
  for (int64_t i = 0; i < count; ++i) layers.push_back({{"mixer", "softmax"}});
  if (config.has("hedgerow")) {
    const Config converted = config.child("hedgerow");
    const int64_t format = converted.get_int("format");
    HEDGEROW_CHECK(format == 1, converted.where(), ": format must be 1; got ", format);
    const Json* entries = converted.find("layers");
    HEDGEROW_CHECK(entries != nullptr && entries->is_array(), converted.where(),
                   ": key \"layers\" must be an array");
    HEDGEROW_CHECK(static_cast<int64_t>(entries->size()) == count, converted.where(),
                   ": layers must be ", count, " as ", key, " says; got ", entries->size());
    for (size_t i = 0; i < entries->size(); ++i) {
      Config((*entries)[i], concat(converted.where(), ": layers[", i, "]")).get_string("mixer");
      layers[i] = (*entries)[i];
    }
  }
  std::vector<int64_t> parameters(static_cast<size_t>(count), 0);
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const int64_t layer = layer_of(name);
    if (layer >= 0 && layer < count) parameters[static_cast<size_t>(layer)] += num_elements(tensor);
  }
  for (size_t i = 0; i < layers.size(); ++i) layers[i]["parameters"] = parameters[i];
  return layers;
}

void print_json(const formats::Checkpoint& checkpoint, const Config* config, const Json& layers) {
  Json document = Json::object();
  Json tensors = Json::object();
  auto& members = tensors.get_ref<Json::object_t&>();
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    Json entry = Json::array();
    entry.push_back(formats::dtype_name(tensor.dtype));
    entry.push_back(tensor.shape);
    members.emplace_back(name, std::move(entry));
  }
  document["tensors"] = std::move(tensors);
  document["metadata"] = Json::object();
  for (const auto& [key, text] : checkpoint.metadata()) document["metadata"][key] = text;
  document["layers"] = layers;
  if (config != nullptr) {
    document["model_type"] = config->get_string_or("model_type", "");
    if (config->has("hedgerow")) document["hedgerow"] = *config->find("hedgerow");
  }
  std::puts(formats::dump_json(document).c_str());
}

std::string millions(int64_t count) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f M", static_cast<double>(count) / 1e6);
  return text;
}

// "softmax, 1.77 M numbers" or "hedgehog (map exp), 1.80 M numbers"
std::string layer_text(const Json& layer) {
  std::string settings;
  for (const auto& [key, value] : layer.get_ref<const Json::object_t&>())
    if (key != "mixer" && key != "parameters")
      settings += concat(settings.empty() ? "" : ", ", key, ' ',
                         value.is_string() ? value.get<std::string>() : value.dump());
  return concat(layer["mixer"].get<std::string>(),
                settings.empty() ? "" : concat(" (", settings, ")"), ", ",
                millions(layer["parameters"].get<int64_t>()), " numbers");
}

void print_summary(const std::string& path, const formats::Checkpoint& checkpoint,
                   const Config* config, const Json& layers, bool list_tensors) {
  std::map<std::string, int64_t> kinds;
  int64_t numbers = 0;
  int64_t bytes = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    ++kinds[formats::dtype_name(tensor.dtype)];
    numbers += num_elements(tensor);
    bytes += tensor.num_bytes;
  }
  std::printf("%s\n", path.c_str());
  if (config != nullptr) {
    std::string text = config->get_string_or("model_type", "no model_type");
    for (const char* key : {"hidden_size", "n_embd", "num_attention_heads", "n_head", "vocab_size",
                            "max_position_embeddings"})
      if (config->has(key)) text += concat(", ", key, ' ', config->get_int(key));
    std::printf("  model     %s\n", text.c_str());
  }
  std::string by_kind;
  for (const auto& [kind, count] : kinds)
    by_kind += concat(by_kind.empty() ? "" : ", ", count, " of ", kind);
  std::printf("  tensors   %zu (%s), %s numbers, %s bytes, in %zu file%s\n",
              checkpoint.tensors().size(), by_kind.c_str(), millions(numbers).c_str(),
              millions(bytes).c_str(), checkpoint.files().size(),
              checkpoint.files().size() == 1 ? "" : "s");
  for (const auto& [key, text] : checkpoint.metadata())
    std::printf("  metadata  %s: %s\n", formats::quote(key).c_str(), formats::quote(text).c_str());
  for (size_t i = 0; i < layers.size(); ++i)
    std::printf("  layer %-3zu %s\n", i, layer_text(layers[i]).c_str());
  if (!list_tensors) return;
  for (const auto& [name, tensor] : checkpoint.tensors())
    std::printf("  %-8s %-20s %s\n", formats::dtype_name(tensor.dtype),
                formats::shape_text(tensor.shape).c_str(), name.c_str());
}

// Folders of architectures that are not known here (yet) are described without this check.
bool is_known_architecture(const Config& config) {
  const std::string type = config.get_string_or("model_type", "");
  const auto& known = models::architectures();
  return std::any_of(known.begin(), known.end(), [&](const models::Architecture& a) {
    return type == a.model_type || type == models::kConvertedPrefix + a.model_type;
  });
}

int run(const CommonOptions& common, const std::string& path) {
  const formats::Checkpoint checkpoint = formats::Checkpoint::open(path);
  std::unique_ptr<Config> config;
  std::error_code ignored;
  if (fs::is_directory(path, ignored) && fs::exists(fs::path(path) / "config.json", ignored))
    config = std::make_unique<Config>(Config::load_folder(path));
  if (config != nullptr && is_known_architecture(*config)) models::load_model(path);
  const Json layers = config == nullptr ? Json::array() : describe_layers(*config, checkpoint);
  if (common.json) {
    print_json(checkpoint, config.get(), layers);
  } else {
    print_summary(path, checkpoint, config.get(), layers, /*list_tensors=*/config == nullptr);
  }
  return 0;
}

}  // namespace

RunCommand add_info(CLI::App& command) {
  auto path = std::make_shared<std::string>();
  command.add_option("model", *path, "model folder, or a safetensors file")
      ->required()
      ->type_name("MODEL|FILE");
  return [path](const CommonOptions& common) { return run(common, *path); };
}

}  // namespace hedgerow::cli
