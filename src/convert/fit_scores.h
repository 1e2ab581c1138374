// The start of mechanisms that are fitted to the scores of the attention that they replace.
#pragma once

#include <cstdint>
#include <vector>

#include "convert/corpus.h"
#include "formats/json.h"
#include "models/encoder.h"

namespace hedgerow::convert {

// Collects moments of the teacher's scores over training text and fits the mixers of `layers` of
// the model to them, as each asks for; parameters that layers share are fitted to all of them.
// Returns what analysis.json says of it: {"rows", "ridge": [[..groups] ..layers],
// "heldout_residual": [[..]]}, means over query positions; null when no mixer is fitted. Throws
// Error when a length exceeds the teacher's positions or the memory does not suffice.
formats::Json fit_to_scores(models::Encoder& teacher, models::Encoder& model,
                            const std::vector<int64_t>& layers, const Corpus& corpus);

}  // namespace hedgerow::convert
