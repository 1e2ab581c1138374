// Adaptively sparse attention (arXiv 1909.00015): entmax_alpha(q k^T / sqrt(D) + mask) v, with an
// alpha of its own for each head, learned or fixed.
//
// Options: alpha ("learned", or a number), share (one alpha per "head" or per "layer"), start (the
// learned alpha's: a number in (1, 2), or "spread" over that interval), length_scale.
// Parameters, as in checkpoints: alpha_raw [H] (or [1]), alpha = 1 + sigmoid(alpha_raw); it starts
// slightly above 1, so that a pretrained softmax model starts as itself. With length_scale also
// scale_delta, scale_beta and scale_gamma [H] (or [1]): q k^T is multiplied by
// delta + beta (log n)^gamma, n the number of keys that the query sees (arXiv 2506.16640); they
// start at 1, 0 and 1, which changes nothing.
// Masks: all.
#pragma once

#include "nn/mixer.h"

namespace hedgerow::nn {

const MixerType& entmax_mixer_type();

}  // namespace hedgerow::nn
