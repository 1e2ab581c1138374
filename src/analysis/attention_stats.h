// Statistics of attention weights, streamed: layer by layer and in blocks of queries, so that no
// tensor over all heads, layers and pairs of tokens ever exists.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "models/encoder.h"

namespace hedgerow::analysis {

// [layer][head]. Layers may differ in heads.
using HeadTable = std::vector<std::vector<double>>;

// Mean over layers of the mean over heads. NaN for an empty table.
double mean_over_layers(const HeadTable& table);

// KL(teacher || model) in nats for one query's weights, averaged over unpadded queries of all
// inputs: what the model's mixers make of the teacher's own queries and keys (what distillation
// minimises). The models must have the same layers and heads. Throws Failure when a mean is below 0
// by more than rounding.
HeadTable kl_on_teacher_heads(models::Encoder& teacher, models::Encoder& model,
                              const std::vector<models::EncoderInput>& inputs);

// The same with the model's weights as they are in its own forward pass.
HeadTable kl_of_models(models::Encoder& teacher, models::Encoder& model,
                       const std::vector<models::EncoderInput>& inputs);

// Entropy of a query's weights in nats, averaged over unpadded queries of all inputs.
HeadTable entropy(models::Encoder& model, const std::vector<models::EncoderInput>& inputs);

// Calls visit(layer, weights [B,H,T,S]) for every layer of one forward pass of the model.
void visit_weights(models::Encoder& model, const models::EncoderInput& input,
                   const std::function<void(int64_t, const at::Tensor&)>& visit);

}  // namespace hedgerow::analysis
