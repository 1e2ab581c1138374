// How close the converted model is to its teacher, on text that neither stage trained on.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "analysis/attention_stats.h"
#include "analysis/embeddings.h"
#include "formats/json.h"
#include "models/model_folder.h"

namespace hedgerow::convert {

struct Measures {
  analysis::EmbeddingFidelity embedding;
  // KL(teacher || model) in nats by length in tokens, mean over layers: what the model's mixers
  // make of the teacher's own queries and keys, or of the model's where it projects fewer heads.
  // None of models whose normalised heads are not as many.
  std::map<int64_t, double> kl;
  // At the report's length, per layer and head: on the teacher's heads, and with the model's own.
  analysis::HeadTable kl_by_head, own_kl_by_head;
  double own_kl = 0;
};

// Whether all layers normalise as many heads in both models, so that they can be compared by head.
bool same_heads(models::Encoder& a, models::Encoder& b);

class Verifier {
 public:
  // `texts` (with special tokens) are embedded; `bodies` are joined to windows of each length.
  // Lengths beyond the model's positions or the text are left out.
  struct Data {
    std::vector<data::Sequence> texts;
    std::vector<std::vector<int64_t>> bodies;
    std::vector<int64_t> prefix, suffix;
    std::vector<int64_t> kl_lengths;
    int64_t kl_tokens = 4096;
  };
  Verifier(const models::LoadedModel& teacher, Data data, bool quiet);

  Measures measure(models::LoadedModel& model, const std::string& label);

  // [N,hidden] of the texts, with progress under the label.
  at::Tensor embed(const models::LoadedModel& model, const std::string& label) const;

  const at::Tensor& teacher_embeddings();                                   // [N,hidden], made once
  const at::Tensor& model_embeddings() const { return model_embeddings_; }  // of the last measure()
  // Windows of the shortest length, at which heads are reported; 0 and none for too little text.
  int64_t report_length() const { return windows_.empty() ? 0 : windows_.begin()->first; }
  const std::map<int64_t, std::vector<models::EncoderInput>>& windows() const { return windows_; }

 private:
  const models::LoadedModel& teacher_;
  Data data_;
  bool quiet_;
  std::map<int64_t, std::vector<models::EncoderInput>> windows_;  // by length
  at::Tensor teacher_embeddings_, model_embeddings_;
};

// {"embedding_cosine", "nn_agreement", "top10_overlap", "kl": {"128": ..}}; NaN becomes null.
formats::Json as_json(const Measures& measures);

formats::Json as_json(const analysis::HeadTable& table);

}  // namespace hedgerow::convert
