// The pieces of an encoder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/encoder.h"
#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"

namespace hedgerow::models {

using Activation = at::Tensor (*)(const at::Tensor&);

// Throws Error that lists the known ones.
Activation activation(const std::string& name);

// Post-norm: x = norm(x + attention(x)), x = norm(x + output(act(intermediate(x)))).
class EncoderLayer : public torch::nn::Module {
 public:
  explicit EncoderLayer(const EncoderConfig& config);
  // x [B,T,hidden] -> [B,T,hidden]
  at::Tensor forward(const at::Tensor& x, const nn::AttentionMask& mask);
  nn::Attention& attention() { return *attention_; }

 private:
  Activation activation_;
  std::shared_ptr<nn::Attention> attention_;
  std::shared_ptr<nn::LayerNorm> attention_norm_, output_norm_;
  std::shared_ptr<nn::Linear> intermediate_, output_;
};

class EncoderEmbeddings : public torch::nn::Module {
 public:
  explicit EncoderEmbeddings(const EncoderConfig& config);
  // ids, types [B,T]; positions [B,T] or [T] -> [B,T,hidden]
  at::Tensor forward(const at::Tensor& ids, const std::optional<at::Tensor>& types,
                     const at::Tensor& positions);
  const at::Tensor& word_weight() const { return word_->weight; }

 private:
  std::shared_ptr<nn::Embedding> word_, position_, token_type_;
  std::shared_ptr<nn::LayerNorm> norm_;
};

// Logits over the vocabulary for every token.
class MaskedLmHead : public torch::nn::Module {
 public:
  explicit MaskedLmHead(const EncoderConfig& config);
  // x [B,T,hidden], word_weight [vocab,hidden] (used where the head is tied) -> [B,T,vocab]
  at::Tensor forward(const at::Tensor& x, const at::Tensor& word_weight);

 private:
  Activation activation_;
  std::shared_ptr<nn::Linear> transform_;
  std::shared_ptr<nn::LayerNorm> norm_;
  std::shared_ptr<nn::Embedding> decoder_;  // [vocab,hidden]; none where the head is tied
  at::Tensor bias_;                         // [vocab]
};

}  // namespace hedgerow::models
