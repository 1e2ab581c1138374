#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/attention_weights/attention_weights.h"
#include "ops/common/composite_gradient.h"

namespace hedgerow::ops {
namespace {

at::Tensor attention_weights_autograd(std::string_view kind, const at::Tensor& q,
                                      const at::Tensor& k, const OptTensor& attn_mask,
                                      bool is_causal, std::optional<double> scale,
                                      const OptTensor& wq, const OptTensor& wk, const OptTensor& bq,
                                      const OptTensor& bk, std::string_view variant,
                                      const OptTensor& key_mask, const OptTensor& alpha) {
  if (!records_gradient({q, k}, {attn_mask, wq, wk, bq, bk, alpha})) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return attention_weights(kind, q, k, attn_mask, is_causal, scale, wq, wk, bq, bk, variant,
                             key_mask, alpha);
  }
  const WeightsInputs in{
      q, k, attn_mask, is_causal, scale, wq, wk, bq, bk, std::string(variant), key_mask, alpha};
  return attention_weights_composite(check_attention_weights(kind, in), in);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Autograd, m) {
  m.impl("attention_weights", hedgerow::ops::attention_weights_autograd);
}
