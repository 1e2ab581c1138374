#include "models/bert.h"

#include <string_view>
#include <utility>

#include "formats/json.h"
#include "hedgerow/error.h"

namespace hedgerow::models {
namespace {

constexpr std::string_view kPrefix = "bert.";

bool starts_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

bool has_tensor(const formats::Checkpoint& weights, const std::string& name) {
  return weights.find(name) != nullptr || weights.find(std::string(kPrefix) + name) != nullptr;
}

EncoderHead read_head(const formats::Config& config) {
  const std::vector<std::string> names = config.has("architectures")
                                             ? config.get_strings("architectures")
                                             : std::vector<std::string>{};
  if (names.empty()) return EncoderHead::none;
  if (names[0] == "BertForMaskedLM" || names[0] == "BertForPreTraining")
    return EncoderHead::masked_lm;
  if (names[0] == "BertForSequenceClassification") return EncoderHead::classification;
  return EncoderHead::none;
}

int64_t read_num_labels(const formats::Config& config) {
  if (const formats::Json* labels = config.find("id2label"))
    return static_cast<int64_t>(labels->size());
  return config.get_int_or("num_labels", 2);
}

void refuse_what_differs(const formats::Config& config) {
  const std::string position = config.get_string_or("position_embedding_type", "absolute");
  HEDGEROW_CHECK(position == "absolute", config.where(),
                 ": position_embedding_type must be absolute; got ", position);
  HEDGEROW_CHECK(!config.get_bool_or("is_decoder", false), config.where(),
                 ": a BERT decoder (is_decoder) is not supported");
}

// Before memory for the model is asked for: a wrong digit in a size would ask for terabytes. Sizes
// that are off by less are reported tensor by tensor, with the shapes.
void check_total_size(const EncoderConfig& c, const formats::Checkpoint& weights,
                      const std::string& where) {
  constexpr double kSlack = 1 << 20;
  const auto hidden = static_cast<double>(c.hidden_size);
  const double tables = static_cast<double>(c.vocab_size + c.max_positions + c.type_vocab_size);
  const double layer = 4 * hidden + 2 * static_cast<double>(c.intermediate_size);
  const double wanted = hidden * (tables + layer * static_cast<double>(c.num_layers));
  double stored = 0;
  for (const auto& [name, view] : weights.tensors()) {
    stored += static_cast<double>(view.num_bytes * 8 / formats::dtype_bits(view.dtype));
  }
  HEDGEROW_CHECK(wanted <= 4 * stored + kSlack, where,
                 ": the sizes contradict the tensors: they make a model of ", wanted,
                 " numbers; the weights hold ", stored);
}

EncoderConfig read_config(const formats::Config& config, const formats::Checkpoint& weights) {
  constexpr int64_t kLargest = int64_t{1} << 24;  // keeps sizes far from overflow
  refuse_what_differs(config);
  EncoderConfig c;
  c.architecture = "bert";
  c.vocab_size = config.get_int_in("vocab_size", 1, kLargest);
  c.hidden_size = config.get_int_in("hidden_size", 1, kLargest);
  c.num_layers = config.get_int_in("num_hidden_layers", 0, 10000);
  c.num_heads = config.get_int_in("num_attention_heads", 1, kLargest);
  c.intermediate_size = config.get_int_in("intermediate_size", 1, kLargest);
  c.max_positions = config.get_int_in("max_position_embeddings", 1, kLargest);
  c.type_vocab_size = config.get_int_in("type_vocab_size", 1, kLargest);
  c.pad_token_id = config.get_int_or("pad_token_id", 0);
  c.layer_norm_eps = config.get_double_or("layer_norm_eps", 1e-12);
  HEDGEROW_CHECK(c.layer_norm_eps >= 0 && c.layer_norm_eps < 1, config.where(),
                 ": layer_norm_eps must be at least 0 and below 1; got ", c.layer_norm_eps);
  c.activation = config.get_string_or("hidden_act", "gelu");
  c.head = read_head(config);
  c.num_labels = c.head == EncoderHead::classification ? read_num_labels(config) : 0;
  c.tied_head = config.get_bool_or("tie_word_embeddings", true);
  c.has_pooler = c.head == EncoderHead::classification ||
                 has_tensor(weights, "pooler.dense.weight") ||
                 has_tensor(weights, "pooler.dense.bias");
  HEDGEROW_CHECK(c.hidden_size % c.num_heads == 0, config.where(),
                 ": hidden_size must be a multiple of num_attention_heads; got ", c.hidden_size,
                 " and ", c.num_heads);
  check_total_size(c, weights, config.where());
  return c;
}

// Our module names (models/encoder.cc) and the checkpoint's, from the start of a name on.
constexpr std::pair<std::string_view, std::string_view> kOutsideLayers[] = {
    {"embeddings.word.", "embeddings.word_embeddings."},
    {"embeddings.position.", "embeddings.position_embeddings."},
    {"embeddings.token_type.", "embeddings.token_type_embeddings."},
    {"embeddings.norm.", "embeddings.LayerNorm."},
    {"pooler.", "pooler.dense."},
    {"masked_lm.transform.", "cls.predictions.transform.dense."},
    {"masked_lm.norm.", "cls.predictions.transform.LayerNorm."},
    {"masked_lm.decoder.", "cls.predictions.decoder."},
    {"masked_lm.", "cls.predictions."},
    {"classifier.", "classifier."},
};
constexpr std::pair<std::string_view, std::string_view> kInLayer[] = {
    {"attention.query.", "attention.self.query."},
    {"attention.key.", "attention.self.key."},
    {"attention.value.", "attention.self.value."},
    {"attention.output.", "attention.output.dense."},
    {"attention.hedgerow.", "attention.hedgerow."},
    {"attention_norm.", "attention.output.LayerNorm."},
    {"intermediate.", "intermediate.dense."},
    {"output.", "output.dense."},
    {"output_norm.", "output.LayerNorm."},
};

template <size_t N>
std::string renamed(const std::pair<std::string_view, std::string_view> (&table)[N],
                    std::string_view name) {
  for (const auto& [ours, theirs] : table) {
    if (starts_with(name, ours)) return std::string(theirs).append(name.substr(ours.size()));
  }
  throw std::logic_error(concat("bert: no checkpoint name for ", name));
}

constexpr const char* kHeadBias = "cls.predictions.bias";
constexpr const char* kDecoderBias = "cls.predictions.decoder.bias";

// "layers.3.attention.query.weight" -> "encoder.layer.3.attention.self.query.weight"
std::string checkpoint_name(std::string_view parameter, const EncoderConfig& config) {
  if (parameter == "masked_lm.bias") return config.tied_head ? kHeadBias : kDecoderBias;
  constexpr std::string_view kLayers = "layers.";
  if (!starts_with(parameter, kLayers)) return renamed(kOutsideLayers, parameter);
  const size_t dot = parameter.find('.', kLayers.size());
  const std::string_view index = parameter.substr(kLayers.size(), dot - kLayers.size());
  return concat("encoder.layer.", index, ".", renamed(kInLayer, parameter.substr(dot + 1)));
}

bool in_base_model(std::string_view name) {
  return starts_with(name, "embeddings.") || starts_with(name, "encoder.") ||
         starts_with(name, "pooler.");
}

// LayerNorm.weight -> LayerNorm.gamma, as checkpoints of 2019 have it; other names: unchanged.
std::string old_norm_name(const std::string& name) {
  for (const auto& [now, before] :
       {std::pair<std::string_view, std::string_view>{"LayerNorm.weight", "LayerNorm.gamma"},
        {"LayerNorm.bias", "LayerNorm.beta"}}) {
    if (name.size() >= now.size() && name.substr(name.size() - now.size()) == now) {
      return name.substr(0, name.size() - now.size()).append(before);
    }
  }
  return name;
}

io::TensorSource source(const std::string& parameter, const EncoderConfig& config) {
  const std::string name = checkpoint_name(parameter, config);
  io::TensorSource out;
  out.names.push_back(name);
  const std::string old_name = old_norm_name(name);
  if (old_name != name) out.names.push_back(old_name);
  if (in_base_model(name)) {
    const size_t plain = out.names.size();
    for (size_t i = 0; i < plain; ++i) out.names.push_back(concat(kPrefix, out.names[i]));
  }
  // The output matrix's bias is tied with it; an untied one has its own, beside an unused other.
  if (name == kHeadBias) out.ties.emplace_back(kDecoderBias);
  if (name == kDecoderBias) out.ties.emplace_back(kHeadBias);
  const bool tied = config.head == EncoderHead::masked_lm && config.tied_head;
  if (tied && name == "embeddings.word_embeddings.weight") {
    out.ties.emplace_back("cls.predictions.decoder.weight");
  }
  return out;
}

bool may_ignore(const std::string& stored, const EncoderConfig& config) {
  std::string_view name = stored;
  if (starts_with(name, kPrefix)) name.remove_prefix(kPrefix.size());
  // Buffers that older versions of Transformers stored.
  if (name == "embeddings.position_ids" || name == "embeddings.token_type_ids") return true;
  // Heads other than the model's own.
  if (starts_with(name, "cls.seq_relationship.")) return true;
  if (starts_with(name, "cls.predictions.")) return config.head != EncoderHead::masked_lm;
  if (starts_with(name, "classifier.") || starts_with(name, "qa_outputs.")) {
    return config.head != EncoderHead::classification;
  }
  return false;
}

std::string saved_name(const std::string& parameter, const EncoderConfig& config) {
  const std::string name = checkpoint_name(parameter, config);
  return config.head != EncoderHead::none && in_base_model(name) ? std::string(kPrefix) + name
                                                                 : name;
}

}  // namespace

const Architecture& bert_architecture() {
  static const Architecture bert{"bert", read_config, source, may_ignore, saved_name};
  return bert;
}

}  // namespace hedgerow::models
