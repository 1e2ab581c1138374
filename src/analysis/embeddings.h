// Sentence embeddings of many texts, and how far two models' embeddings agree.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/batches.h"
#include "models/model_folder.h"

namespace hedgerow::analysis {

// Batches hold about this many tokens, padding included.
inline constexpr int64_t kTokensPerBatch = 2048;

// [N,hidden] embeddings in the order of the texts; float32, contiguous. `progress` hears how many
// texts are done. Throws Interrupted between batches.
at::Tensor embed_texts(const models::LoadedModel& model, const std::vector<data::Sequence>& texts,
                       const std::function<void(int64_t)>& progress = {});

struct EmbeddingFidelity {
  double embedding_cosine = 0;  // mean cosine of the two embeddings of a text
  double nn_agreement = 0;      // share of texts with the same nearest other text
  double top10_overlap = 0;     // mean shared part of the ten nearest
  std::vector<double> cosines;  // per text
};

// Fewer than 12 texts have no ten neighbours worth comparing: then both neighbour figures are NaN.
EmbeddingFidelity embedding_fidelity(const at::Tensor& teacher, const at::Tensor& model);

// Of each row of `queries` [N,hidden]: how many rows of `texts` [N,hidden] are nearer to it, by
// cosine, than the row of the same number; of equal ones those before it.
std::vector<int64_t> pair_ranks(const at::Tensor& queries, const at::Tensor& texts);

// The k nearest other texts of each row.
std::vector<std::vector<int64_t>> nearest_texts(const at::Tensor& embeddings, int64_t k);

}  // namespace hedgerow::analysis
