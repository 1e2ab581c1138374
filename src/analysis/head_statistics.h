// What the heads of a model do, streamed over blocks of queries (Correia, Niculae and Martins,
// "Adaptively sparse transformers", arXiv 1909.00015, section 5): no tensor over all pairs of
// tokens is kept. For every mechanism; padded queries never count.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "analysis/attention_stats.h"
#include "models/encoder.h"

namespace hedgerow::analysis {

// Tokens [begin, end) of one text.
struct TokenRange {
  int64_t begin = 0, end = 0;
  bool operator==(const TokenRange&) const = default;
};

// Words of two or more tokens: a token and the "##" continuations after it (WordPiece). Other
// tokenizers mark continuations differently and give none.
std::vector<TokenRange> subword_groups(const std::vector<std::string>& tokens);

// Texts as one batch, padded at the end of rows.
struct StatisticsInput {
  models::EncoderInput input;
  std::vector<std::vector<TokenRange>> groups;  // by row; empty: none in any row
};

struct HeadStatisticsOptions {
  // Means of the weight at -reach .. reach are taken; negative is to the left.
  int64_t reach = 5;
  // Equal bins of the densities of single texts, over [0, 1].
  int64_t density_bins = 20;
};

// n is the number of keys that a query sees; p its weights in one head. NaN where there was nothing
// to average.
struct HeadStatistics {
  // Share of the pairs of query and visible key whose weight is not exactly 0, in one text; mean
  // over texts. And how many texts fall into each bin: [layer][bin], all heads of the layer.
  HeadTable density;
  std::vector<std::vector<int64_t>> density_counts;
  // -sum p log_n p in [0, 1], mean over queries with n >= 2.
  HeadTable entropy;
  // Jensen-Shannon divergence of the heads of a layer for one query, in units of log n:
  // H(mean_h p_h) - mean_h H(p_h), in [0, 1]; mean over queries with n >= 2. [layer]
  std::vector<double> diversity;
  // [offset]: weight on the key at that offset, mean over queries that see such a key.
  std::vector<int64_t> offsets;
  std::vector<HeadTable> at_offset;
  // For each group of subwords the largest mass that one of its tokens puts on the others; mean
  // over groups.
  HeadTable subword_merging;
  // What the mixers declare of their heads ("alpha"); NaN in layers that declare no such value.
  std::map<std::string, HeadTable> head_values;

  double uniform_weight = 0;  // mean of 1 / n: what equal weights put on any one key
  int64_t num_texts = 0, num_queries = 0, num_groups = 0;
};

// Runs the model over the inputs. A text's figures do not depend on the texts beside it, beyond
// rounding. Throws Error on groups that are not within their row, or when the heads of a layer see
// different keys. Memory: one layer's heads, and 64 Ki weights of each head at once.
HeadStatistics head_statistics(models::Encoder& model, const std::vector<StatisticsInput>& inputs,
                               const HeadStatisticsOptions& options = {},
                               const std::function<void(int64_t)>& inputs_done = {});

// One head in a ranking.
struct NamedHead {
  int64_t layer = 0, head = 0;
  int64_t offset = 0;  // of positional heads
  double weight = 0;
};

// All heads by the largest of their mean weights at an offset other than 0, largest first.
std::vector<NamedHead> positional_heads(const HeadStatistics& statistics);

// All heads by their subword-merging score, largest first; none where there were no groups.
std::vector<NamedHead> subword_merging_heads(const HeadStatistics& statistics);

}  // namespace hedgerow::analysis
