// Bidirectional encoders (BERT so far): embeddings, layers of attention and MLP, optional head.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/attention.h"

namespace hedgerow::models {

// What stands on the last hidden states and gives logits.
enum class EncoderHead {
  none,
  masked_lm,       // [B,T,vocab]: dense, activation, norm, output matrix (tied to the embeddings)
  classification,  // [B,labels]: pooler of the first token, dense
};

// Plain data, filled from config.json by the architecture's entry in the registry.
struct EncoderConfig {
  std::string architecture;  // "bert"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t intermediate_size = 0;
  int64_t max_positions = 0;
  int64_t type_vocab_size = 0;
  int64_t pad_token_id = 0;
  double layer_norm_eps = 1e-12;
  std::string activation = "gelu";  // or gelu_new, gelu_pytorch_tanh, relu, silu, tanh
  bool has_pooler = true;           // dense and tanh over the first token; classification needs it
  EncoderHead head = EncoderHead::none;
  int64_t num_labels = 0;  // of classification
  bool tied_head = true;   // masked_lm's output matrix is the word embeddings
};

struct EncoderInput {
  at::Tensor input_ids;                      // int64 [B,T]
  std::optional<at::Tensor> attention_mask;  // int64 or bool [B,T]; missing = ones
  std::optional<at::Tensor> token_type_ids;  // int64 [B,T]; missing = zeros
  std::optional<at::Tensor> position_ids;    // int64 [B,T] or [T]; missing = 0 .. T-1
};

struct EncoderOutput {
  at::Tensor last_hidden_state;           // [B,T,hidden]
  std::vector<at::Tensor> hidden_states;  // embeddings and each layer's output, if asked for
  std::optional<at::Tensor> logits;       // of the model's head, where it has one
};

class Encoder : public torch::nn::Module {
 public:
  // Softmax attention in every layer; all weights zero until they are loaded or set. Throws Error
  // on an activation that it does not know.
  explicit Encoder(const EncoderConfig& config);

  // Throws Error when a length exceeds the model's positions, an id the vocabulary, a mask or type
  // tensor's shape the ids'. Padded positions (mask 0) are keys for nobody; their own hidden states
  // are computed and mean nothing.
  EncoderOutput forward(const EncoderInput& input, bool all_hidden_states = false);

  const EncoderConfig& config() const { return config_; }
  int64_t num_layers() const { return config_.num_layers; }
  // The longest text: the model's positions, or what the mechanisms of its layers can take.
  int64_t max_tokens();
  nn::Attention& attention(int64_t layer);
  // One layer alone, at any length: x [B,T,hidden] -> [B,T,hidden].
  at::Tensor forward_layer(int64_t layer, const at::Tensor& x, const nn::AttentionMask& mask = {});

  // Low-rank updates on the q, k, v and output projections of every layer, and folding them in.
  void add_lora(int64_t rank, double alpha);
  void merge_lora();

 private:
  struct Parts;  // embeddings, layers, pooler, head
  void check_layer(int64_t layer) const;

  EncoderConfig config_;
  std::shared_ptr<Parts> parts_;
};

}  // namespace hedgerow::models
