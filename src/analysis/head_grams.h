// How far the heads of a layer can stand in for one another: sums over text from which fewer heads
// are chosen and mixed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/encoder.h"
#include "nn/mixer.h"

namespace hedgerow::analysis {

// Of each of `layers` of a model with as many key, value and softmax heads, over all queries of the
// inputs, which must have no padding. In float64. Time: H^2 (S d_model + T) multiplications per
// query and key.
std::vector<nn::HeadGrams> head_grams(models::Encoder& model, const std::vector<int64_t>& layers,
                                      const std::vector<models::EncoderInput>& inputs);

}  // namespace hedgerow::analysis
