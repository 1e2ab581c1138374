#include "models/encoder.h"

#include <algorithm>

#include "hedgerow/error.h"
#include "models/encoder_parts.h"

namespace hedgerow::models {
namespace {

void check_range(const char* what, const at::Tensor& ids, int64_t limit, const char* limit_name) {
  if (ids.numel() == 0) return;
  const int64_t low = ids.min().item<int64_t>(), high = ids.max().item<int64_t>();
  HEDGEROW_CHECK(low >= 0 && high < limit, "encoder: ", what, " must be in [0, ", limit, "), the ",
                 limit_name, "; got ", low < 0 ? low : high);
}

void check_ids(const char* what, const at::Tensor& t) {
  HEDGEROW_CHECK(t.scalar_type() == at::kLong, "encoder: ", what, " must be int64; got ",
                 c10::toString(t.scalar_type()));
}

void check_input(const EncoderInput& in, const EncoderConfig& c) {
  const at::Tensor& ids = in.input_ids;
  HEDGEROW_CHECK(ids.defined() && ids.dim() == 2,
                 "encoder: input_ids must be [batch, tokens]; got ",
                 ids.defined() ? concat(ids.sizes()) : "none");
  check_ids("input_ids", ids);
  check_range("input_ids", ids, c.vocab_size, "vocabulary");
  if (in.attention_mask) {
    HEDGEROW_CHECK(in.attention_mask->sizes() == ids.sizes(),
                   "encoder: attention_mask must have the shape of input_ids; got ",
                   in.attention_mask->sizes(), " for ", ids.sizes());
  }
  if (in.token_type_ids) {
    HEDGEROW_CHECK(in.token_type_ids->sizes() == ids.sizes(),
                   "encoder: token_type_ids must have the shape of input_ids; got ",
                   in.token_type_ids->sizes(), " for ", ids.sizes());
    check_ids("token_type_ids", *in.token_type_ids);
    check_range("token_type_ids", *in.token_type_ids, c.type_vocab_size, "token types");
  }
  if (!in.position_ids) {
    HEDGEROW_CHECK(ids.size(1) <= c.max_positions, "encoder: a text must have at most ",
                   c.max_positions, " tokens, the model's positions; got ", ids.size(1));
    return;
  }
  const at::Tensor& positions = *in.position_ids;
  HEDGEROW_CHECK(positions.sizes() == ids.sizes() || positions.sizes() == ids.sizes().slice(1),
                 "encoder: position_ids must be [batch, tokens] or [tokens]; got ",
                 positions.sizes(), " for ", ids.sizes());
  check_ids("position_ids", positions);
  check_range("position_ids", positions, c.max_positions, "model's positions");
}

// Keys that may be seen; none when nothing is padded, which is cheaper.
nn::AttentionMask padding_mask(const EncoderInput& in) {
  nn::AttentionMask mask;
  if (!in.attention_mask) return mask;
  const at::Tensor keep = in.attention_mask->ne(0);
  if (!keep.all().item<bool>()) mask.key_mask = keep;
  return mask;
}

}  // namespace

struct Encoder::Parts {
  std::shared_ptr<EncoderEmbeddings> embeddings;
  std::vector<std::shared_ptr<EncoderLayer>> layers;
  std::shared_ptr<nn::Linear> pooler;
  std::shared_ptr<MaskedLmHead> masked_lm;
  std::shared_ptr<nn::Linear> classifier;
};

Encoder::Encoder(const EncoderConfig& config) : config_(config), parts_(std::make_shared<Parts>()) {
  const EncoderConfig& c = config_;
  HEDGEROW_CHECK(c.num_heads > 0 && c.hidden_size % c.num_heads == 0,
                 "encoder: hidden_size must be a multiple of the heads; got ", c.hidden_size,
                 " and ", c.num_heads);
  parts_->embeddings = register_module("embeddings", std::make_shared<EncoderEmbeddings>(c));
  const auto layers = register_module("layers", std::make_shared<torch::nn::Module>());
  for (int64_t i = 0; i < c.num_layers; ++i) {
    parts_->layers.push_back(
        layers->register_module(std::to_string(i), std::make_shared<EncoderLayer>(c)));
  }
  if (c.has_pooler) {
    parts_->pooler =
        register_module("pooler", std::make_shared<nn::Linear>(c.hidden_size, c.hidden_size, true));
  }
  if (c.head == EncoderHead::masked_lm) {
    parts_->masked_lm = register_module("masked_lm", std::make_shared<MaskedLmHead>(c));
  }
  if (c.head == EncoderHead::classification) {
    HEDGEROW_CHECK(c.has_pooler, "encoder: a classification head needs a pooler");
    parts_->classifier = register_module(
        "classifier", std::make_shared<nn::Linear>(c.hidden_size, c.num_labels, true));
  }
}

EncoderOutput Encoder::forward(const EncoderInput& input, bool all_hidden_states) {
  check_input(input, config_);
  const nn::AttentionMask mask = padding_mask(input);
  const at::Tensor& ids = input.input_ids;
  const at::Tensor positions =
      input.position_ids ? *input.position_ids : at::arange(ids.size(1), ids.options());
  at::Tensor x = parts_->embeddings->forward(ids, input.token_type_ids, positions);  // [B,T,hidden]
  EncoderOutput out;
  if (all_hidden_states) out.hidden_states.push_back(x);
  for (const auto& layer : parts_->layers) {
    x = layer->forward(x, mask);
    if (all_hidden_states) out.hidden_states.push_back(x);
  }
  out.last_hidden_state = x;
  if (parts_->masked_lm) {
    out.logits = parts_->masked_lm->forward(x, parts_->embeddings->word_weight());
  }
  if (parts_->classifier) {
    HEDGEROW_CHECK(ids.size(1) > 0, "encoder: classification needs at least one token; got none");
    const at::Tensor pooled = parts_->pooler->forward(x.select(1, 0)).tanh();  // [B,hidden]
    out.logits = parts_->classifier->forward(pooled);
  }
  return out;
}

int64_t Encoder::max_tokens() {
  int64_t most = config_.max_positions;
  for (int64_t layer = 0; layer < num_layers(); ++layer)
    most = std::min(most, attention(layer).mixer().max_keys().value_or(most));
  return most;
}

void Encoder::check_layer(int64_t layer) const {
  HEDGEROW_CHECK(layer >= 0 && layer < config_.num_layers, "encoder: the layer must be in [0, ",
                 config_.num_layers, "); got ", layer);
}

nn::Attention& Encoder::attention(int64_t layer) {
  check_layer(layer);
  return parts_->layers[static_cast<size_t>(layer)]->attention();
}

at::Tensor Encoder::forward_layer(int64_t layer, const at::Tensor& x,
                                  const nn::AttentionMask& mask) {
  check_layer(layer);
  HEDGEROW_CHECK(x.dim() == 3 && x.size(2) == config_.hidden_size, "encoder: x must be [B, T, ",
                 config_.hidden_size, "]; got ", x.sizes());
  return parts_->layers[static_cast<size_t>(layer)]->forward(x, mask);
}

void Encoder::add_lora(int64_t rank, double alpha) {
  for (const auto& layer : parts_->layers) {
    nn::Attention& a = layer->attention();
    for (nn::Linear* linear : {&a.query(), &a.key(), &a.value(), &a.output()}) {
      linear->add_lora(rank, alpha);
    }
  }
}

void Encoder::merge_lora() {
  for (const auto& layer : parts_->layers) {
    nn::Attention& a = layer->attention();
    for (nn::Linear* linear : {&a.query(), &a.key(), &a.value(), &a.output()}) linear->merge_lora();
  }
}

}  // namespace hedgerow::models
