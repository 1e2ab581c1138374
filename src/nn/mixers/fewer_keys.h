// What attention from partial computation is compared with: three ways to give every query few
// keys, without reconstructing the scores of the others.
#pragma once

#include "nn/mixer.h"

namespace hedgerow::nn {

// The keys and values at P positions common to all queries, chosen from scores; the others are
// dropped.
const MixerType& selected_keys_mixer_type();

// Keys and values projected along the sequence to P rows each, by learned matrices [P,n] of the
// layer (Wang et al., "Linformer", 2020, arXiv 2006.04768). They start as means over P stretches.
const MixerType& linformer_mixer_type();

// The P keys nearest to a query's own position.
const MixerType& window_mixer_type();

}  // namespace hedgerow::nn
