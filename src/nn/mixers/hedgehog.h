// Hedgehog linear attention (arXiv 2402.04347) and the feature maps it is compared with: a learned
// feature map phi per layer and head, separate for queries and keys, and
//   y_t = sum_s phi(q_t).phi(k_s) v_s / sum_s phi(q_t).phi(k_s).
//
// Options: map, width (E; 0 = head_dim), bias, seed (performer), max_length (cosformer).
// Parameters, as in checkpoints: wq [H,D,E], wk [Hkv,D,E], bq [H,E], bk [Hkv,E]; W starts as the
// identity (1 on the diagonal, 0 elsewhere), with seeded random columns where E > D, the same for
// queries and keys; b starts as 0. Of performer they are buffers: a seeded orthogonal projection
// that is not trained.
// Masks: key padding and causality. A mask that differs by query or head is an error, because the
// running sums of linear attention cannot leave out a key for one query alone.
#pragma once

#include "nn/mixer.h"

namespace hedgerow::nn {

const MixerType& hedgehog_mixer_type();

}  // namespace hedgerow::nn
