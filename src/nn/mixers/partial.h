// Attention from partial computation as a mechanism of models.
#pragma once

#include "nn/mixer.h"

namespace hedgerow::nn {

// Positions, the reconstruction of scores and its mean are tensors of the layer, fitted to the
// scores of the attention whose place it takes (start_from); fixed, or learned with the model.
const MixerType& partial_mixer_type();

}  // namespace hedgerow::nn
