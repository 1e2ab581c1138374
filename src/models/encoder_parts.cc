#include "models/encoder_parts.h"

#include <utility>

#include "hedgerow/error.h"

namespace hedgerow::models {
namespace {

at::Tensor gelu_tanh(const at::Tensor& x) { return at::gelu(x, "tanh"); }

constexpr std::pair<const char*, Activation> kActivations[] = {
    {"gelu", [](const at::Tensor& x) { return at::gelu(x); }},
    {"gelu_new", gelu_tanh},
    {"gelu_fast", gelu_tanh},
    {"gelu_pytorch_tanh", gelu_tanh},
    {"relu", [](const at::Tensor& x) { return at::relu(x); }},
    {"silu", [](const at::Tensor& x) { return at::silu(x); }},
    {"swish", [](const at::Tensor& x) { return at::silu(x); }},
    {"tanh", [](const at::Tensor& x) { return at::tanh(x); }},
};

}  // namespace

Activation activation(const std::string& name) {
  std::string known;
  for (const auto& [known_name, function] : kActivations) {
    if (name == known_name) return function;
    known += concat(known.empty() ? "" : ", ", known_name);
  }
  throw Error(concat("encoder: unknown activation (hidden_act) \"", name, "\"; known: ", known));
}

EncoderLayer::EncoderLayer(const EncoderConfig& c) : activation_(models::activation(c.activation)) {
  nn::HeadLayout layout = nn::HeadLayout::multi_head(c.num_heads, c.hidden_size / c.num_heads);
  layout.model_dim = c.hidden_size;
  const nn::AttentionShape shape{c.hidden_size, c.hidden_size, layout, /*bias=*/true};
  attention_ = register_module(
      "attention", std::make_shared<nn::Attention>(shape, nn::make_mixer("softmax", layout)));
  const auto norm = [&] {
    return std::make_shared<nn::LayerNorm>(c.hidden_size, c.layer_norm_eps);
  };
  attention_norm_ = register_module("attention_norm", norm());
  intermediate_ = register_module(
      "intermediate", std::make_shared<nn::Linear>(c.hidden_size, c.intermediate_size, true));
  output_ = register_module("output",
                            std::make_shared<nn::Linear>(c.intermediate_size, c.hidden_size, true));
  output_norm_ = register_module("output_norm", norm());
}

at::Tensor EncoderLayer::forward(const at::Tensor& x, const nn::AttentionMask& mask) {
  const at::Tensor h = attention_norm_->forward(x + attention_->forward(x, x, mask));
  return output_norm_->forward(h + output_->forward(activation_(intermediate_->forward(h))));
}

EncoderEmbeddings::EncoderEmbeddings(const EncoderConfig& c) {
  const auto table = [&](const char* name, int64_t rows) {
    return register_module(name, std::make_shared<nn::Embedding>(rows, c.hidden_size));
  };
  word_ = table("word", c.vocab_size);
  position_ = table("position", c.max_positions);
  token_type_ = table("token_type", c.type_vocab_size);
  norm_ = register_module("norm", std::make_shared<nn::LayerNorm>(c.hidden_size, c.layer_norm_eps));
}

at::Tensor EncoderEmbeddings::forward(const at::Tensor& ids, const std::optional<at::Tensor>& types,
                                      const at::Tensor& positions) {
  // Missing types are all 0: one row for every token.
  const at::Tensor type_rows =
      types ? token_type_->forward(*types) : token_type_->weight.select(0, 0);
  return norm_->forward(word_->forward(ids) + type_rows + position_->forward(positions));
}

MaskedLmHead::MaskedLmHead(const EncoderConfig& c) : activation_(models::activation(c.activation)) {
  transform_ = register_module("transform",
                               std::make_shared<nn::Linear>(c.hidden_size, c.hidden_size, true));
  norm_ = register_module("norm", std::make_shared<nn::LayerNorm>(c.hidden_size, c.layer_norm_eps));
  if (!c.tied_head) {
    decoder_ =
        register_module("decoder", std::make_shared<nn::Embedding>(c.vocab_size, c.hidden_size));
  }
  bias_ = register_parameter("bias", at::zeros({c.vocab_size}));
}

at::Tensor MaskedLmHead::forward(const at::Tensor& x, const at::Tensor& word_weight) {
  const at::Tensor h = norm_->forward(activation_(transform_->forward(x)));
  return at::linear(h, decoder_ ? decoder_->weight : word_weight, bias_);
}

}  // namespace hedgerow::models
