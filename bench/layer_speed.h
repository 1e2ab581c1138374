// Speed and memory of one layer of a model against the same layer with softmax attention. What
// `hedgerow bench model` prints.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/encoder.h"

namespace hedgerow::bench {

struct LayerBenchConfig {
  int64_t layer = 0;
  std::vector<int64_t> lengths = {512, 1024, 2048, 4096, 8192, 16384};
  int64_t rounds = 3;
  int64_t max_softmax_length = 16384;  // longer rows time the model's own mixer alone
};

struct LayerBenchRow {
  std::string mixer;  // "hedgehog", "softmax", ..
  int64_t length = 0;
  double seconds = 0;
  int64_t peak_bytes = -1;  // beyond input and weights; -1: not measured
};

// Inference of the layer (attention, norms, MLP) on one sequence [1,T,hidden] of normal numbers,
// any T: positions belong to the embeddings. Rows come by length, the model's own mixer before
// softmax; a model that has softmax there gives one row a length. Calls `report` after each row.
// Throws Error on a layer that the model does not have and on sizes below 1.
std::vector<LayerBenchRow> bench_layer(models::Encoder& model, const LayerBenchConfig& config,
                                       const std::function<void(const LayerBenchRow&)>& report);

}  // namespace hedgerow::bench
