// The exp map in ATen operators: exponents stay relative to maxima, so that every finite input
// gives a finite result equal to the formula.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/common/grouped.h"
#include "ops/hedgehog_attention/hedgehog_attention.h"
#include "ops/linear_attention/linear_attention.h"

namespace hedgerow::ops {

// sum_s exp(b_s - m) v_s and sum_s exp(b_s - m) per feature, over the keys absorbed so far.
struct ExpState {
  at::Tensor s;  // [B,Hkv,1,F,Dv]
  at::Tensor z;  // [B,Hkv,1,F]
  at::Tensor m;  // [B,Hkv,1,F], -inf where no key was seen; without gradient

  static ExpState empty(int64_t batch, int64_t kv_heads, int64_t features, int64_t value_dim,
                        const at::TensorOptions& options);
  // b [B,Hkv,1,n,F], -inf where the key is removed; v [B,Hkv,1,n,Dv].
  void absorb(const at::Tensor& b, const at::Tensor& v);
};

// Numerators and normalisers of queries, both relative to exp(reference).
struct ExpRows {
  at::Tensor num;        // [B,Hkv,G,n,Dv]
  at::Tensor den;        // [B,Hkv,G,n,1]
  at::Tensor reference;  // [B,Hkv,G,n,1], without gradient
};

// a [B,Hkv,G,n,F] against the state alone.
ExpRows exp_rows(const at::Tensor& a, const ExpState& state);
// All keys of span, causal; the state ends with all keys in it.
ExpRows exp_rows_causal(const at::Tensor& a, const at::Tensor& b, const at::Tensor& v,
                        const CausalSpan& span, ExpState& state);

// Features [B,Hkv,G,T,F] and [B,Hkv,1,S,F] whose products are the weights of a call without
// causality, each row relative to a reference of its own.
struct ExpFeatures {
  at::Tensor q, k;
};
ExpFeatures exp_features(const at::Tensor& a, const at::Tensor& b);
// Causal: unnormalised weights [B,Hkv,G,T,S].
at::Tensor exp_weights_causal(const at::Tensor& a, const at::Tensor& b, const CausalSpan& span);

// Signed exponents [y, -y] of a call's queries and keys, grouped; a removed key's are -inf.
struct ExpInputs {
  at::Tensor a;  // [B,Hkv,G,T,F]
  at::Tensor b;  // [B,Hkv,1,S,F]
  GroupedKeys keys;
};
ExpInputs exp_inputs(const HedgehogInputs& in, const at::Tensor& v);

// The call as linear attention over features, for maps that are computed as they stand.
LinearInputs feature_inputs(const HedgehogInputs& in, const at::Tensor& v);

// Boolean [B,Hkv,G,T]: the query is not finite, or sees a key that is not.
at::Tensor poisoned_queries(const HedgehogInputs& in, const GroupedKeys& keys);

}  // namespace hedgerow::ops
