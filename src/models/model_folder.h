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
  std::string refused;     // why pool() cannot do what the folder asks for; empty: it can
};

struct LoadOptions {
  at::ScalarType dtype = at::kFloat;  // kFloat or kDouble; stored tensors are converted
  // Options that the mixers of a converted folder must have, by name ("map" -> "exp"): loading a
  // folder that was made with others is refused.
  std::map<std::string, nn::OptionValue> expected;
};

struct LoadedModel {
  std::shared_ptr<Encoder> encoder;
  Pooling pooling;
  std::string folder;

  // The longest text that is embedded whole: what the folder says, what the model takes.
  int64_t max_tokens() const;
};

// Loads config.json, weights (single file or shards) and the "hedgerow" key of a converted folder.
// Throws Error listing every missing and every unexpected tensor at once, wrong shapes and dtypes,
// an unknown architecture (with the known ones), a config that contradicts the tensors. The model
// is in evaluation mode and its parameters require gradients.
LoadedModel load_model(const std::string& folder, const LoadOptions& options = {});

// Reads modules.json, the pooling module's config.json and sentence_bert_config.json where there
// are.
Pooling read_pooling(const std::string& folder);

// Writes config.json (with the "hedgerow" key and model_type hedgerow_<type> when a mixer differs
// from softmax), model.safetensors, and copies tokenizer and pooling files of `source_folder`.
// `folder` must be an existing, writable folder (usually OUT.partial).
void save_model(const LoadedModel& model, const std::string& source_folder,
                const std::string& folder);

// [B,hidden]: pooled (and normalised) sentence embeddings of last_hidden_state [B,T,hidden] under
// the mask [B,T] (int64 or bool). Throws Error with `refused`, where that is set.
at::Tensor pool(const Pooling& pooling, const at::Tensor& last_hidden_state,
                const at::Tensor& attention_mask);

}  // namespace hedgerow::models
