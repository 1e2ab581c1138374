// The attention layer of every model: projections around a mixer. It knows nothing of mechanisms.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>

#include "nn/linear.h"
#include "nn/mixer.h"

namespace hedgerow::nn {

struct AttentionShape {
  int64_t model_dim = 0;   // d_model of x and of the output
  int64_t memory_dim = 0;  // d_model of m
  HeadLayout layout;
  bool bias = true;
};

// What a teacher's attention shows to an observer: its heads and mask, detached from nothing.
struct AttentionTrace {
  at::Tensor q, k, v;  // [B,Hk,T,D], [B,Hkv,S,D], [B,Hkv,S,Dv]
  AttentionMask mask;
  at::Tensor x, m;  // the tokens [B,T,d_model], [B,S,d_model]
};

class Attention : public torch::nn::Module {
 public:
  Attention(const AttentionShape& shape, std::shared_ptr<Mixer> mixer);

  // x [B,T,model_dim], m [B,S,memory_dim] (self-attention: x) -> [B,T,model_dim].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& m, const AttentionMask& mask);

  Mixer& mixer() { return *mixer_; }
  std::shared_ptr<Mixer> mixer_ptr() { return mixer_; }
  // Replaces the mechanism; the projections stay. Throws Error when its heads are not ours. Its
  // parameters are named "hedgerow.<name>" under this module, as in checkpoints.
  void set_mixer(std::shared_ptr<Mixer> mixer);
  // The same for a mechanism with other heads: projections of other sizes are made anew, zeros
  // until they are loaded or set.
  void set_mixer_and_projections(std::shared_ptr<Mixer> mixer);

  // Called in forward() with the projected heads; empty = none.
  void set_observer(std::function<void(const AttentionTrace&)> observer) {
    observer_ = std::move(observer);
  }

  const AttentionShape& shape() const { return shape_; }
  Linear& query() { return *query_; }
  Linear& key() { return *key_; }
  Linear& value() { return *value_; }
  Linear& output() { return *output_; }

 private:
  void make_projections();

  AttentionShape shape_;
  std::shared_ptr<Linear> query_, key_, value_, output_;
  std::shared_ptr<Mixer> mixer_;
  std::function<void(const AttentionTrace&)> observer_;
};

}  // namespace hedgerow::nn
