#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>

#include "ops/attention_weights/attention_weights.h"
#include "ops/common/masks.h"
#include "ops/entmax_attention/entmax_attention.h"
#include "ops/hedgehog_attention/hedgehog_attention.h"
#include "ops/softmax_attention/softmax_attention.h"

namespace hedgerow::ops {
namespace {

// attn_mask with the key mask in it.
OptTensor with_key_mask(const OptTensor& attn_mask, const OptTensor& key_mask) {
  if (!key_mask) return attn_mask;
  const at::Tensor keep = key_mask->view({key_mask->size(0), 1, 1, key_mask->size(1)});
  if (!attn_mask) return keep;
  if (attn_mask->scalar_type() == at::kBool) return attn_mask->logical_and(keep);
  return at::where(keep, *attn_mask,
                   at::scalar_tensor(-INFINITY, attn_mask->options().requires_grad(false)));
}

}  // namespace

at::Tensor attention_weights_composite(WeightsKind kind, const WeightsInputs& in) {
  if (kind == WeightsKind::kHedgehog) {
    const HedgehogInputs inputs{in.q,       in.k,        in.k,         *in.wq, *in.wk, in.bq, in.bk,
                                in.variant, in.key_mask, in.is_causal, {},     {},     {}};
    return hedgehog_weights_composite(inputs).to(in.q.scalar_type());
  }
  const OptTensor mask = with_key_mask(in.attn_mask, in.key_mask);
  if (kind == WeightsKind::kEntmax)
    return entmax_weights_composite(in.q, in.k, {}, *in.alpha, mask, in.is_causal, in.scale)
        .to(in.q.scalar_type());
  const SoftmaxWeights w =
      softmax_weights_composite(in.q, in.k, {}, mask, in.is_causal, in.scale, false);
  return w.weights.to(in.q.scalar_type());
}

namespace {

// Weights are made of ATen operators on every device; with gradients recorded these differentiate.
at::Tensor attention_weights_any(std::string_view kind, const at::Tensor& q, const at::Tensor& k,
                                 const OptTensor& attn_mask, bool is_causal,
                                 std::optional<double> scale, const OptTensor& wq,
                                 const OptTensor& wk, const OptTensor& bq, const OptTensor& bk,
                                 std::string_view variant, const OptTensor& key_mask,
                                 const OptTensor& alpha) {
  const WeightsInputs in{
      q, k, attn_mask, is_causal, scale, wq, wk, bq, bk, std::string(variant), key_mask, alpha};
  return attention_weights_composite(check_attention_weights(kind, in), in);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CompositeExplicitAutograd, m) {
  m.impl("attention_weights", hedgerow::ops::attention_weights_any);
}
TORCH_LIBRARY_IMPL(hedgerow, CPU, m) {
  m.impl("attention_weights", hedgerow::ops::attention_weights_any);
}
