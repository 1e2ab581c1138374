#include "models/mixer_config.h"

#include "hedgerow/error.h"

namespace hedgerow::models {
namespace {

using formats::Json;

nn::OptionValue read_option(const Json& value, const std::string& where, const std::string& name) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  HEDGEROW_CHECK(value.is_string(), where, ": option ", formats::quote(name),
                 " must be a string, a number, true or false; got ", formats::kind_name(value));
  return value.get<std::string>();
}

std::shared_ptr<nn::Mixer> read_mixer(const formats::Config& layer, const nn::HeadLayout& layout) {
  const std::string kind = layer.get_string("mixer");
  std::map<std::string, nn::OptionValue> options;
  for (const auto& [name, value] : layer.json().items()) {
    if (name != "mixer") options[name] = read_option(value, layer.where(), name);
  }
  try {
    return nn::make_mixer(kind, layout, options);
  } catch (const Error& e) {
    throw Error(concat(layer.where(), ": ", e.what()));
  }
}

Json describe_mixer(const nn::Mixer& mixer) {
  Json layer = {{"mixer", mixer.kind()}};
  for (const auto& [name, value] : mixer.options().values()) {
    std::visit([&, &key = name](const auto& v) { layer[key] = v; }, value);
  }
  return layer;
}

}  // namespace

std::vector<std::shared_ptr<nn::Mixer>> read_mixers(const formats::Config& hedgerow,
                                                    int64_t num_layers,
                                                    const nn::HeadLayout& layout) {
  const int64_t format = hedgerow.get_int("format");
  HEDGEROW_CHECK(format == kHedgerowFormat, hedgerow.where(), ": this version reads format ",
                 kHedgerowFormat, "; got ", format);
  for (const auto& [name, value] : hedgerow.json().items()) {
    HEDGEROW_CHECK(name == "format" || name == "layers", hedgerow.where(), ": unknown key ",
                   formats::quote(name));
  }
  const Json* layers = hedgerow.find("layers");
  HEDGEROW_CHECK(layers != nullptr && layers->is_array(), hedgerow.where(),
                 ": \"layers\" must be an array");
  HEDGEROW_CHECK(static_cast<int64_t>(layers->size()) == num_layers, hedgerow.where(),
                 ": \"layers\" must have one entry for each of the model's ", num_layers,
                 " layers; got ", layers->size());
  std::vector<std::shared_ptr<nn::Mixer>> mixers;
  for (const Json& layer : *layers) {
    const std::string where = concat(hedgerow.where(), ".layers[", mixers.size(), "]");
    mixers.push_back(read_mixer(formats::Config(layer, where), layout));
  }
  return mixers;
}

formats::Json describe_mixers(Encoder& encoder) {
  Json layers = Json::array();
  for (int64_t i = 0; i < encoder.num_layers(); ++i) {
    layers.push_back(describe_mixer(encoder.attention(i).mixer()));
  }
  return {{"format", kHedgerowFormat}, {"layers", layers}};
}

std::string mixer_difference(Encoder& encoder,
                             const std::vector<std::shared_ptr<nn::Mixer>>& others) {
  for (int64_t i = 0; i < encoder.num_layers(); ++i) {
    const nn::Mixer &ours = encoder.attention(i).mixer(), &other = *others[i];
    if (ours.kind() != other.kind())
      return concat("layer ", i, " is ", ours.kind(), ", not ", other.kind());
    for (const auto& [name, value] : ours.options().values()) {
      const nn::OptionValue& wanted = other.options().values().at(name);
      if (value != wanted) {
        return concat("layer ", i, " has ", name, " ", nn::to_string(value), ", not ",
                      nn::to_string(wanted));
      }
    }
  }
  return "";
}

void share_parameters(Encoder& encoder) {
  nn::Mixer* first = nullptr;
  for (int64_t i = 0; i < encoder.num_layers(); ++i) {
    nn::Mixer& mixer = encoder.attention(i).mixer();
    if (!mixer.shares_parameters()) continue;
    if (first == nullptr) {
      first = &mixer;
    } else {
      mixer.share_parameters(*first);
    }
  }
}

bool is_converted(Encoder& encoder) {
  for (int64_t i = 0; i < encoder.num_layers(); ++i) {
    if (encoder.attention(i).mixer().kind() != "softmax") return true;
  }
  return false;
}

}  // namespace hedgerow::models
