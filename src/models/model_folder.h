// A Hugging Face folder as a model, and back.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/encoder.h"

namespace hedgerow::models {

// How a sentence embedding is made from hidden states, as the folder says (modules.json,
// 1_Pooling/config.json); without those files mean pooling and no normalisation.
struct Pooling {
  enum class Kind { mean, cls, max } kind = Kind::mean;
  bool normalize = false;
  int64_t max_length = 0;  // tokens that the folder truncates to; 0 = the model's positions
};

struct LoadedModel {
  std::shared_ptr<Encoder> encoder;
  Pooling pooling;
  std::string folder;
};

// Loads config.json, weights (single file or shards) and the "hedgerow" key of a converted folder.
// Throws Error listing every missing and every unexpected tensor at once, wrong shapes and dtypes,
// an unknown architecture (with the known ones), a config that contradicts the tensors.
LoadedModel load_model(const std::string& folder);

// Writes config.json (with the "hedgerow" key and model_type hedgerow_<type> when a mixer differs
// from softmax), model.safetensors, and copies tokenizer and pooling files of `source_folder`.
// `folder` must be an existing, writable folder (usually OUT.partial).
void save_model(const LoadedModel& model, const std::string& source_folder, const std::string& folder);

// [B,hidden]: pooled (and normalised) sentence embeddings of last_hidden_state under the mask.
at::Tensor pool(const Pooling& pooling, const at::Tensor& last_hidden_state, const at::Tensor& attention_mask);

}  // namespace hedgerow::models
