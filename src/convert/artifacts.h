// The files of a finished conversion beside the model: summary.json, analysis.json, maps.json.
#pragma once

#include <string>

#include "convert/config.h"
#include "convert/corpus.h"
#include "convert/verify.h"
#include "formats/json.h"

namespace hedgerow::convert {

// What one measurement adds to the results: its measures, heads and the cosines' histogram.
// What a reader knows a model by: its folder, or the folder above one that is only called "model".
std::string display_name(const std::string& path);

formats::Json measured(const Measures& measures);

// What single heads are: the values that mixers declare ("alpha": [[per head] per layer]) and, for
// mechanisms whose weights may be exactly 0, at the report's length the density (also its mean over
// layers) and the diversity of each layer's heads (analysis/head_statistics.h).
formats::Json head_tables(const Verifier& verifier, models::Encoder& model);

// summary.json from the stages' results ({"before": measured(..), ..}), their seconds and
// head_tables().
formats::Json make_summary(const ConvertConfig& config, models::Encoder& model,
                           const formats::Json& results, const formats::Json& seconds,
                           const formats::Json& heads);

// analysis.json from the stages' results, entropy_tables(), neighbour_examples() and how the
// model's mixers mix heads (analysis/head_matrices.h).
formats::Json make_analysis(const Verifier& verifier, models::Encoder& model,
                            const formats::Json& results, const formats::Json& entropy,
                            const formats::Json& examples);

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
