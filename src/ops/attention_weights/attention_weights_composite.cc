#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>

#include "ops/attention_weights/attention_weights.h"
#include "ops/common/masks.h"
#include "ops/common/struct_operator.h"
#include "ops/entmax_attention/entmax_attention.h"
#include "ops/hedgehog_attention/hedgehog_attention.h"
#include "ops/softmax_attention/softmax_attention.h"
#include "ops/talking_heads_attention/talking_heads_attention.h"

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
  const OptTensor mask =
      kind == WeightsKind::kHedgehog ? OptTensor() : with_key_mask(in.attn_mask, in.key_mask);
  at::Tensor weights;
  switch (kind) {
    case WeightsKind::kSoftmax:
      weights =
          softmax_weights_composite(in.q, in.k, {}, mask, in.is_causal, in.scale, false).weights;
      break;
    case WeightsKind::kEntmax:
      weights = entmax_weights_composite(in.q, in.k, {}, *in.alpha, mask, in.is_causal, in.scale);
      break;
    case WeightsKind::kTalkingHeads:
      weights = mixed_weights_composite(talking_heads_inputs(in, mask));
      break;
    case WeightsKind::kPartial:
      weights = partial_weights_composite(partial_inputs(in, mask));
      break;
    case WeightsKind::kHedgehog:
      weights = hedgehog_weights_composite({in.q,
                                            in.k,
                                            in.k,
                                            *in.wq,
                                            *in.wk,
                                            in.bq,
                                            in.bk,
                                            in.variant,
                                            in.key_mask,
                                            in.is_causal,
                                            {},
                                            {},
                                            {}});
      break;
  }
  return weights.to(in.q.scalar_type());
}

namespace {

// Weights are made of ATen operators on every device; with gradients recorded these differentiate.
at::Tensor attention_weights_any(const WeightsInputs& in) {
  return attention_weights_composite(check_attention_weights(in), in);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CompositeExplicitAutograd, m) {
  using namespace hedgerow::ops;
  m.impl("attention_weights", kStructKernel<&attention_weights_any>);
}
TORCH_LIBRARY_IMPL(hedgerow, CPU, m) {
  using namespace hedgerow::ops;
  m.impl("attention_weights", kStructKernel<&attention_weights_any>);
}
