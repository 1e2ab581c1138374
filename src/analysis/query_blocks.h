// Attention weights of many queries, a block of queries at a time.
#pragma once

#include <cstdint>
#include <functional>

#include "nn/attention.h"

namespace hedgerow::analysis {

struct QueryBlock {
  int64_t begin = 0, count = 0;  // queries [begin, begin + count)
  at::Tensor q;                  // [B,Hk,count,D]
  nn::AttentionMask mask;        // of these queries
  int64_t first_position = 0;    // among the keys, as MixInput says
  at::Tensor x;                  // [B,count,d_model]: their tokens, where the trace has them
};

// The block with the queries of these heads in the place of its own.
QueryBlock with_queries(QueryBlock block, const nn::AttentionTrace& heads);

// Cuts the queries so that the weights of one head in a block are about 64 Ki numbers: temporaries
// of a dozen heads then stay in the cache, where those of whole layers would be page faults.
void for_each_query_block(const nn::AttentionTrace& heads,
                          const std::function<void(const QueryBlock&)>& body);

// What a mixer makes of a block: its weights, or its log_weights, [B,H,count,S].
at::Tensor weights(nn::Mixer& mixer, const nn::AttentionTrace& heads, const QueryBlock& block);
at::Tensor log_weights(nn::Mixer& mixer, const nn::AttentionTrace& heads, const QueryBlock& block);

}  // namespace hedgerow::analysis
