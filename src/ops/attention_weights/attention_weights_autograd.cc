#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/attention_weights/attention_weights.h"
#include "ops/common/composite_gradient.h"
#include "ops/common/struct_operator.h"

namespace hedgerow::ops {
namespace {

at::Tensor attention_weights_autograd(const WeightsInputs& in) {
  if (!records_gradient({in.q, in.k}, {in.attn_mask, in.wq, in.wk, in.bq, in.bk, in.alpha,
                                       in.logits_proj, in.weights_proj, in.x_logits, in.m_logits,
                                       in.x_weights, in.m_weights, in.reconstruction, in.mean})) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return attention_weights(in);
  }
  return attention_weights_composite(check_attention_weights(in), in);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Autograd, m) {
  using namespace hedgerow::ops;
  m.impl("attention_weights", kStructKernel<&attention_weights_autograd>);
}
