// Talking-heads attention (arXiv 2003.02436): heads mixed before and after the softmax.
//
// Options: logits and weights (which of the two projections there are), dynamic (terms of theirs
// that depend on tokens: x_logits, m_logits, x_weights, m_weights, or all), alpha (softmax, or as
// entmax has it), share and start (entmax's), heads, key_heads and value_heads (fewer heads of the
// softmax, of q and k, of v than the model's; 0: as many, and as the softmax has), init (identity
// for a pretrained model, random for a new one).
// Parameters, as in checkpoints: logits_proj [Hk,H], weights_proj [H,Hv], x_logits and m_logits
// [d_model,Hk,H], x_weights and m_weights [d_model,H,Hv], alpha_raw as entmax's. The identity
// leaves a model as it is; dynamic terms start at 0 with it, else with variance
// 0.01 / (heads * d_model).
// weights() are the normalised ones, before the second mixing. Masks: all.
#pragma once

#include "nn/mixer.h"

namespace hedgerow::nn {

const MixerType& talking_heads_mixer_type();

}  // namespace hedgerow::nn
