// Stage 2, recovery: the converted model learns to give the teacher's sentence embeddings and
// hidden states.
#pragma once

#include <memory>

#include "convert/config.h"
#include "convert/corpus.h"
#include "models/model_folder.h"
#include "train/objective.h"

namespace hedgerow::convert {

// Loss of a batch of texts: mean (1 - cosine) of the sentence embeddings + hidden_weight times the
// squared distance of the last hidden states relative to the teacher's square. Trains all weights
// that the embedding depends on, or with lora_rank > 0 low-rank updates on q, k, v and output
// (which the caller has added) and the mixers, or with mixers_only the mixers alone.
std::unique_ptr<train::Objective> recover_objective(const models::LoadedModel& teacher,
                                                    models::LoadedModel& model,
                                                    const Corpus& corpus,
                                                    const RecoverConfig& config, int64_t seed);

}  // namespace hedgerow::convert
