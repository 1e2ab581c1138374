// Fewer heads than the teacher's: which are kept, and from where the mixing of heads starts.
#pragma once

#include <cstdint>
#include <vector>

#include "convert/corpus.h"
#include "models/encoder.h"

namespace hedgerow::convert {

// For those of `layers` in which the model's mixer has fewer heads than the teacher: sums up what
// the teacher's heads compute on training text, lets the mixer start from that, and fills the
// model's projections with the teacher's for the heads that it keeps. Nothing if there is none.
void start_fewer_heads(models::Encoder& teacher, models::Encoder& model,
                       const std::vector<int64_t>& layers, const Corpus& corpus);

}  // namespace hedgerow::convert
