// The files of a finished conversion beside the model: summary.json, analysis.json, maps.json.
#pragma once

#include <string>

#include "convert/config.h"
#include "convert/corpus.h"
#include "convert/verify.h"
#include "formats/json.h"

namespace hedgerow::convert {

// What one measurement adds to the results: its measures, heads and the cosines' histogram.
formats::Json measured(const Measures& measures);

// summary.json from the stages' results ({"before": measured(..), ..}) and their seconds.
formats::Json make_summary(const ConvertConfig& config, models::Encoder& model,
                           const formats::Json& results, const formats::Json& seconds);

formats::Json make_analysis(const Verifier& verifier, const formats::Json& results,
                            const formats::Json& entropy, const formats::Json& examples);

// {"teacher": table, "model": table} at the report's length.
formats::Json entropy_tables(const Verifier& verifier, models::Encoder& teacher,
                             models::Encoder& model);

// A few texts with their nearest others in both models.
formats::Json neighbour_examples(const at::Tensor& teacher, const at::Tensor& model,
                                 const std::vector<std::string>& texts);

// Attention maps of some held-out texts of different length and one longer passage.
formats::Json make_maps(const TextEncoder& encoder, const Corpus& corpus, models::Encoder& teacher,
                        models::Encoder& model);

}  // namespace hedgerow::convert
