#include "nn/mixer.h"

#include <limits>

#include "hedgerow/error.h"

namespace hedgerow::nn {

HeadLayout HeadLayout::multi_head(int64_t heads, int64_t head_dim, int64_t kv_heads) {
  HeadLayout layout;
  layout.key_heads = layout.heads = layout.value_heads = heads;
  layout.kv_heads = kv_heads == 0 ? heads : kv_heads;
  layout.head_dim = layout.value_dim = head_dim;
  return layout;
}

bool HeadLayout::operator==(const HeadLayout& o) const {
  return key_heads == o.key_heads && kv_heads == o.kv_heads && heads == o.heads &&
         value_heads == o.value_heads && head_dim == o.head_dim && value_dim == o.value_dim;
}

void check_one_head_count(const std::string& kind, const HeadLayout& layout) {
  HEDGEROW_CHECK(layout.key_heads == layout.heads && layout.heads == layout.value_heads, kind,
                 ": one head count for q, weights and output; got ", layout.key_heads, "/",
                 layout.heads, "/", layout.value_heads);
}

HeadChoice Mixer::start_from(const HeadGrams&) {
  throw Error(concat("mixer: ", kind(), " keeps all heads of a layer"));
}

std::optional<ScoreReconstruction> Mixer::start_from(const ScoreSample&) {
  throw Error(concat("mixer: ", kind(), " is not fitted to scores"));
}

void Mixer::share_parameters(Mixer&) {
  throw Error(concat("mixer: ", kind(), " has no parameters common to layers"));
}

void Mixer::to(torch::Dtype dtype, bool non_blocking) {
  std::vector<std::pair<at::Tensor, at::Tensor>> integers;  // and what they hold
  for (const at::Tensor& buffer : buffers(/*recurse=*/false))
    if (!buffer.is_floating_point()) integers.emplace_back(buffer, buffer.clone());
  Module::to(dtype, non_blocking);
  for (auto& [buffer, kept] : integers) buffer.set_data(kept);
}

at::Tensor FixedProjector::keys(const std::optional<at::Tensor>& positions) const {
  return positions ? k_.index_select(2, *positions) : k_;
}

at::Tensor FixedProjector::values(const std::optional<at::Tensor>& positions) const {
  return positions ? v_.index_select(2, *positions) : v_;
}

std::optional<at::Tensor> AttentionMask::combined() const {
  if (!key_mask) return attn_mask;
  const at::Tensor keys = key_mask->unsqueeze(1).unsqueeze(1);  // [B,1,1,S]
  if (!attn_mask) return keys;
  if (attn_mask->scalar_type() == at::kBool) return attn_mask->logical_and(keys);
  return at::where(keys, *attn_mask, -std::numeric_limits<double>::infinity());
}

std::optional<at::Tensor> AttentionMask::visible(int64_t num_queries, int64_t num_keys) const {
  std::optional<at::Tensor> seen = combined();
  if (seen && seen->scalar_type() != at::kBool) {
    seen = seen->ne(-std::numeric_limits<double>::infinity());
  }
  if (!is_causal) return seen;
  at::Tensor causal = at::ones({num_queries, num_keys}, at::kBool).tril(num_keys - num_queries);
  return seen ? seen->logical_and(causal) : causal;
}

}  // namespace hedgerow::nn
