// Stage 1, attention distillation: the mixers learn the teacher's attention weights from the
// teacher's own queries and keys, all layers in one teacher pass (METHODS: Hedgehog, stage 1).
#pragma once

#include <memory>

#include "convert/config.h"
#include "convert/corpus.h"
#include "models/encoder.h"
#include "train/objective.h"

namespace hedgerow::convert {

// Per layer, head and query i:  - sum_j p_ij log s_ij,  p the teacher's weights and s the mixer's,
// averaged over queries and heads; the loss is the mean over `layers`. Everything is computed from
// logarithms, and a divergence below 0 is a Failure. Batches are windows of running text of one
// length each, half of them moved to a random position, so that all positions of the model occur.
// Trains the parameters of the model's mixers in `layers` and nothing else.
std::unique_ptr<train::Objective> distil_objective(models::Encoder& teacher, models::Encoder& model,
                                                   const std::vector<int64_t>& layers,
                                                   const Corpus& corpus, const DistilConfig& config,
                                                   int64_t seed);

}  // namespace hedgerow::convert
