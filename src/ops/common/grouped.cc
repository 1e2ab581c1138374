#include "ops/common/grouped.h"

#include <ATen/ATen.h>

#include <cmath>

#include "ops/common/masks.h"

namespace hedgerow::ops {

at::Tensor group_heads(const at::Tensor& t, int64_t kv_heads) {
  const int64_t group = kv_heads == 0 ? 1 : t.size(1) / kv_heads;
  return t.reshape({t.size(0), kv_heads, group, t.size(2), t.size(3)});
}

GroupedKeys clean_keys(const at::Tensor& k, const at::Tensor& v,
                       const std::optional<at::Tensor>& key_mask) {
  GroupedKeys keys;
  keys.bad =
      at::isfinite(k.detach()).all(-1).logical_and(at::isfinite(v.detach()).all(-1)).logical_not();
  keys.k = finite_or_zero(k).unsqueeze(2);
  keys.v = finite_or_zero(v).unsqueeze(2);
  if (key_mask) {
    const at::Tensor keep = key_mask->view({key_mask->size(0), 1, 1, key_mask->size(1), 1});
    keys.k = keys.k.masked_fill(keep.logical_not(), 0);
    keys.v = keys.v.masked_fill(keep.logical_not(), 0);
    keys.bad = keys.bad.logical_and(key_mask->unsqueeze(1));
    keys.keep = keep;
  }
  return keys;
}

namespace {

// flags [B,X,S] -> [B,X,1,T or 1]: the query sees a key with the flag.
at::Tensor rows_seeing(const at::Tensor& flags, int64_t queries, bool is_causal) {
  if (!is_causal) return flags.any(-1, true).unsqueeze(2);
  const CausalSpan span(queries, flags.size(2));
  const at::Tensor seen = flags.cumsum(-1).gt(0).narrow(-1, span.prefix, span.pairs);
  const at::Tensor blind = at::zeros({flags.size(0), flags.size(1), span.blind}, flags.options());
  return at::cat({blind, seen}, -1).unsqueeze(2);
}

}  // namespace

at::Tensor GroupedKeys::poisoned_rows(int64_t queries, bool is_causal) const {
  return rows_seeing(bad, queries, is_causal);
}

at::Tensor GroupedKeys::seeing_rows(int64_t queries, bool is_causal) const {
  const at::Tensor flags = keep.defined() ? keep.view({keep.size(0), 1, keep.size(3)})
                                          : at::ones({bad.size(0), 1, bad.size(2)}, bad.options());
  return rows_seeing(flags, queries, is_causal);
}

NormalisedRows normalise_rows(const at::Tensor& num, const at::Tensor& den,
                              const at::Tensor& poisoned) {
  const at::Tensor empty = den == 0;
  const at::Tensor safe = den.masked_fill(empty, 1);
  const at::Tensor out =
      (num / safe).masked_fill(empty, 0).masked_fill(poisoned.unsqueeze(-1), std::nan(""));
  const at::Tensor inverse =
      safe.detach().reciprocal().masked_fill(empty, 0).squeeze(-1);  // [B,Hkv,G,T]
  return {out.flatten(1, 2), inverse.flatten(1, 2)};
}

}  // namespace hedgerow::ops
