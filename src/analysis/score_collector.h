// Collecting statistics of attention scores over text: streamed, window by window.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "analysis/matrix_sketch.h"
#include "models/encoder.h"
#include "nn/score_moments.h"

namespace hedgerow::analysis {

struct ScoreOptions {
  int64_t length = 128;     // n: tokens of every window, queries and keys alike
  bool by_query = false;    // moments of each head and query position [H,n]; else of each head [H]
  bool pool_heads = false;  // of all heads together, [n] or []
  bool mean_by_query = false;   // groups [H,n], the latter within (nn/score_moments.h)
  bool weights = false;         // moments of the weights after the softmax too
  bool mean_weights = false;    // the mean weight of each head, query and key
  int64_t num_parts = 4;        // of the text, for cross-validation
  int64_t matrix_rank = 0;      // of a sketch of whole n x n matrices, heads together; 0: none
  std::vector<int64_t> layers;  // in ascending order
};

// Scores are q . k / sqrt(D), before mask and softmax, whatever mechanism makes weights of them.
class ScoreCollector {
 public:
  // Throws Error on a length beyond the model's positions, and, before anything is allocated, when
  // bytes() exceed the memory that the machine has left: it names both.
  ScoreCollector(models::Encoder& model, const ScoreOptions& options);

  // Memory that the sums take.
  static int64_t bytes(models::Encoder& model, const ScoreOptions& options);

  // One pass over windows input_ids [B,n] without padding; passes go to the parts in turn.
  void add(const at::Tensor& input_ids);
  int64_t num_passes() const { return num_passes_; }
  int64_t num_windows() const { return num_windows_; }
  size_t num_layers() const { return options_.layers.size(); }
  int64_t length() const { return options_.length; }
  bool has_weights() const { return options_.weights; }

  // Of options.layers[i]: moments of each part, those without rows left out.
  std::vector<nn::ScoreMoments> parts(size_t i) const;
  nn::ScoreMoments scores(size_t i) const;   // of all parts
  nn::ScoreMoments weights(size_t i) const;  // where options.weights
  at::Tensor mean_weights(size_t i) const;   // [H,n,n], where options.mean_weights
  const MatrixSketch& matrices(size_t i) const { return sketches_.at(i); }

  // Everything above as tensors, to be saved; and to go on from copies of their values.
  std::vector<std::pair<std::string, at::Tensor>> state() const;
  void restore(const std::vector<std::pair<std::string, at::Tensor>>& state);

 private:
  void add_layer(size_t i, const nn::AttentionTrace& trace);

  models::Encoder& model_;
  ScoreOptions options_;
  std::vector<std::vector<nn::ScoreMoments>> scores_;  // [layer][part]
  std::vector<nn::ScoreMoments> weights_;
  std::vector<at::Tensor> weight_sums_;  // [H,n,n]
  std::vector<MatrixSketch> sketches_;
  int64_t num_passes_ = 0, num_windows_ = 0;
};

}  // namespace hedgerow::analysis
