#include "ops/common/masks.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <limits>

#include "base/counter_rng.h"

namespace hedgerow::ops {
namespace {

double lowest(at::ScalarType dtype) {
  return dtype == at::kDouble ? std::numeric_limits<double>::lowest()
                              : std::numeric_limits<float>::lowest();
}

at::Tensor shift_right(const at::Tensor& x, int64_t bits) {
  return at::bitwise_and(at::__rshift__(x, bits), (int64_t{1} << (64 - bits)) - 1);
}

// mix64 of base/counter_rng.h on int64 tensors, whose products wrap as those of uint64_t do.
at::Tensor mix64(at::Tensor x) {
  x = x + static_cast<int64_t>(0x9e3779b97f4a7c15ull);
  x = at::bitwise_xor(x, shift_right(x, 30)) * static_cast<int64_t>(0xbf58476d1ce4e5b9ull);
  x = at::bitwise_xor(x, shift_right(x, 27)) * static_cast<int64_t>(0x94d049bb133111ebull);
  return at::bitwise_xor(x, shift_right(x, 31));
}

}  // namespace

at::Tensor causal_keep(int64_t queries, int64_t keys, const at::TensorOptions& like) {
  return at::ones({queries, keys}, like.dtype(at::kBool).requires_grad(false)).tril(keys - queries);
}

MaskTerms split_mask(const std::optional<at::Tensor>& attn_mask, bool is_causal, int64_t queries,
                     int64_t keys, const at::TensorOptions& accumulate) {
  MaskTerms terms;
  if (attn_mask && attn_mask->dim() < 2) {  // so that the last two dimensions are T and S
    const at::Tensor wide =
        attn_mask->dim() == 0 ? attn_mask->view({1, 1}) : attn_mask->unsqueeze(0);
    return split_mask(wide, is_causal, queries, keys, accumulate);
  }
  if (attn_mask && attn_mask->scalar_type() == at::kBool) {
    terms.keep = *attn_mask;
  } else if (attn_mask) {
    const at::Tensor excluded = attn_mask->detach() == -std::numeric_limits<double>::infinity();
    terms.keep = excluded.logical_not();
    // A finite value stays finite in the narrower type: only -inf excludes.
    const at::ScalarType dtype = c10::typeMetaToScalarType(accumulate.dtype());
    terms.bias = attn_mask->masked_fill(excluded, 0);
    if (attn_mask->scalar_type() == at::kDouble && dtype == at::kFloat)
      terms.bias = terms.bias.clamp_min(lowest(dtype));
    terms.bias = terms.bias.to(dtype);
  }
  if (is_causal) {
    const at::Tensor causal = causal_keep(queries, keys, accumulate);
    terms.keep = terms.keep.defined() ? at::logical_and(terms.keep, causal) : causal;
  }
  return terms;
}

at::Tensor reduce_to_shape(const at::Tensor& grad, at::IntArrayRef shape) {
  return at::sum_to(grad, shape);
}

at::Tensor dropout_factors(int64_t batch, int64_t heads, int64_t queries, int64_t keys, double p,
                           int64_t seed, const at::TensorOptions& options) {
  const at::TensorOptions integers = options.dtype(at::kLong).requires_grad(false);
  const auto count = [&](int64_t n, at::IntArrayRef shape) {
    return at::arange(n, integers).view(shape);
  };
  at::Tensor key = mix64(at::bitwise_xor(count(batch, {batch, 1, 1, 1}), seed));
  key = mix64(at::bitwise_xor(key, count(heads, {1, heads, 1, 1})));
  key = mix64(at::bitwise_xor(key, count(queries, {1, 1, queries, 1})));
  const at::Tensor bits =
      shift_right(mix64(at::bitwise_xor(key, count(keys, {1, 1, 1, keys}))), 32);
  const at::Tensor kept = bits >= static_cast<int64_t>(dropout_threshold(p));
  return kept.to(options.dtype()).div(1 - p);
}

at::Tensor expand_heads(const at::Tensor& t, int64_t heads) {
  const int64_t kv_heads = t.size(1);
  return kv_heads == heads || kv_heads == 0 ? t : t.repeat_interleave(heads / kv_heads, 1);
}

at::Tensor finite_or_zero(const at::Tensor& t) {
  return t.masked_fill(at::isfinite(t.detach()).logical_not(), 0);
}

at::Tensor project_tokens(const at::Tensor& tokens, const at::Tensor& projection) {
  // isfinite has no Meta kernel without Python
  const at::Tensor wrong = tokens.detach().mul(0).ne(0);
  return at::einsum("bnd,dio->bnio", {tokens.masked_fill(wrong, 0), projection})
      .masked_fill(wrong.any(-1).unsqueeze(-1).unsqueeze(-1),
                   std::numeric_limits<double>::quiet_NaN());
}

}  // namespace hedgerow::ops
