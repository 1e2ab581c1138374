// Softmax attention, the baseline: softmax(q k^T / sqrt(D) + mask) v.
#pragma once

#include "nn/mixer.h"

namespace hedgerow::nn {

const MixerType& softmax_mixer_type();

}  // namespace hedgerow::nn
