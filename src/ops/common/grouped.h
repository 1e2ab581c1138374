// What the composite forms of linear-time attention share: heads grouped by their key/value head,
// keys freed of what masks exclude, the causal frame, and rows divided by their normaliser.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace hedgerow::ops {

// [B,H,T,X] -> [B,Hkv,G,T,X], G = H / Hkv.
at::Tensor group_heads(const at::Tensor& t, int64_t kv_heads);

// Causal, aligned bottom-right: the first `prefix` keys are seen by every query, the first `blind`
// queries see none; then query blind + i sees keys up to prefix + i, for i < pairs.
struct CausalSpan {
  CausalSpan(int64_t queries, int64_t keys)
      : prefix(std::max<int64_t>(0, keys - queries)),
        blind(std::max<int64_t>(0, queries - keys)),
        pairs(std::min(queries, keys)) {}
  int64_t prefix, blind, pairs;
};

struct GroupedKeys {
  at::Tensor k;     // [B,Hkv,1,S,X], 0 where masked or not finite
  at::Tensor v;     // [B,Hkv,1,S,Dv], the same
  at::Tensor keep;  // boolean [B,1,1,S,1]; undefined without a mask
  at::Tensor bad;   // boolean [B,Hkv,S]: kept, and not finite
  // Boolean [B,Hkv,1,T or 1]: the query sees a bad key.
  at::Tensor poisoned_rows(int64_t queries, bool is_causal) const;
  // Boolean [B,1,1,T or 1]: the query sees a key.
  at::Tensor seeing_rows(int64_t queries, bool is_causal) const;
};
GroupedKeys clean_keys(const at::Tensor& k, const at::Tensor& v,
                       const std::optional<at::Tensor>& key_mask);

struct NormalisedRows {
  at::Tensor out;      // [B,H,T,Dv]: num / den, 0 where den is exactly 0, NaN where poisoned
  at::Tensor inv_den;  // [B,H,T], without gradient
};
// num [B,Hkv,G,T,Dv], den [B,Hkv,G,T,1].
NormalisedRows normalise_rows(const at::Tensor& num, const at::Tensor& den,
                              const at::Tensor& poisoned);

}  // namespace hedgerow::ops
