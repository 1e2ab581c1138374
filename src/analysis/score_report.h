// What is said of collected scores: spectra, overlaps, positions, reconstructions, as
// docs/RUN_FOLDER.md describes them under spectra.json.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/score_collector.h"
#include "formats/json.h"
#include "metrics/attention_cost.h"

namespace hedgerow::analysis {

struct ScoreReportOptions {
  std::vector<int64_t> positions;  // numbers of positions P and of components k, each in [1, n]
  int64_t seed = 0;                // of random positions
};

// "forms": of the scores, the same with each row's mean removed, and the weights where collected.
formats::Json describe_spectra(const ScoreCollector& scores, const ScoreReportOptions& options);

// "forms" of {"overlap", "explained"} between the layers of two models of one length.
formats::Json describe_against(const ScoreCollector& scores, const ScoreCollector& others,
                               const ScoreReportOptions& options);

// "selection": positions of every method for each layer and for all together, and what they leave.
formats::Json describe_selection(const ScoreCollector& scores, const ScoreReportOptions& options);

// "reconstruction": ridge and share of held-out variance left, by number of positions and sharing.
formats::Json describe_reconstruction(const ScoreCollector& scores,
                                      const ScoreReportOptions& options);

// "queries": share of held-out variance left with `positions` common positions and a common
// reconstruction, and with mean, positions and reconstruction of each query position. `own`:
// collected by query, heads pooled.
formats::Json describe_queries(const ScoreCollector& scores, const ScoreCollector& own,
                               int64_t positions);

// "matrix": components of whole n x n matrices, and the query-key pairs that tell most about them.
formats::Json describe_matrices(const ScoreCollector& scores, int64_t num_pairs);

// "cost": multiplications by number of positions, as shares of exact attention's.
formats::Json describe_cost(const metrics::AttentionSizes& sizes,
                            const std::vector<int64_t>& positions);

}  // namespace hedgerow::analysis
