#include "analysis/query_blocks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

namespace hedgerow::analysis {
namespace {

constexpr int64_t kPairsAtOnce = int64_t{1} << 16;

nn::AttentionMask mask_of(const nn::AttentionTrace& heads, int64_t begin, int64_t count) {
  const int64_t num_queries = heads.q.size(2), num_keys = heads.k.size(2);
  nn::AttentionMask mask = heads.mask;
  if (mask.attn_mask && mask.attn_mask->dim() >= 2 && mask.attn_mask->size(-2) == num_queries)
    mask.attn_mask = mask.attn_mask->narrow(-2, begin, count);
  if (!mask.is_causal || count == num_queries) return mask;
  // Causality is aligned at the end, so a block in the middle is an offset mask of its own.
  const at::Tensor seen =
      at::ones({count, num_keys}, at::kBool).tril(begin + num_keys - num_queries);
  if (!mask.attn_mask)
    mask.attn_mask = seen;
  else if (mask.attn_mask->scalar_type() == at::kBool)
    mask.attn_mask = mask.attn_mask->logical_and(seen);
  else
    mask.attn_mask = at::where(seen, *mask.attn_mask, -std::numeric_limits<double>::infinity());
  mask.is_causal = false;
  return mask;
}

}  // namespace

QueryBlock with_queries(QueryBlock block, const nn::AttentionTrace& heads) {
  block.q = heads.q.narrow(2, block.begin, block.count);
  block.x = heads.x.defined() ? heads.x.narrow(1, block.begin, block.count) : at::Tensor();
  return block;
}

void for_each_query_block(const nn::AttentionTrace& heads,
                          const std::function<void(const QueryBlock&)>& body) {
  const int64_t num_queries = heads.q.size(2);
  const int64_t pairs_per_query = std::max<int64_t>(1, heads.q.size(0) * heads.k.size(2));
  const int64_t step = std::max<int64_t>(1, kPairsAtOnce / pairs_per_query);
  for (int64_t begin = 0; begin < num_queries; begin += step) {
    const int64_t count = std::min(step, num_queries - begin);
    const nn::AttentionMask mask = mask_of(heads, begin, count);
    // A mixer that is told of causality aligns the ends itself.
    const bool realigned = heads.mask.is_causal && !mask.is_causal;
    const int64_t shift = realigned ? std::max<int64_t>(0, heads.k.size(2) - num_queries) : 0;
    body(with_queries({begin, count, {}, mask, begin + shift, {}}, heads));
  }
}

at::Tensor weights(nn::Mixer& mixer, const nn::AttentionTrace& heads, const QueryBlock& block) {
  const nn::FixedProjector project(block.q, heads.k, heads.v);
  return mixer.weights({block.x, heads.m, project, block.mask, block.first_position});
}

at::Tensor log_weights(nn::Mixer& mixer, const nn::AttentionTrace& heads, const QueryBlock& block) {
  const nn::FixedProjector project(block.q, heads.k, heads.v);
  return mixer.log_weights({block.x, heads.m, project, block.mask, block.first_position});
}

}  // namespace hedgerow::analysis
