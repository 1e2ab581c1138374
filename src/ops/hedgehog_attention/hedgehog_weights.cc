// Full weights of Hedgehog attention. A product of features divided by its row sums is one step for
// autograd, so that training on weights keeps one [T,S] tensor for each head and not one per
// operator.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "ops/common/composite_gradient.h"
#include "ops/common/masks.h"
#include "ops/hedgehog_attention/exp_composite.h"
#include "ops/hedgehog_attention/hedgehog_attention.h"

namespace hedgerow::ops {
namespace {

using kernels::FeatureMap;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// a / (sum of a over keys), and 1 / that sum; both 0 where the sum is. Excluded entries of `a` are
// 0.
struct Normalised {
  at::Tensor weights, inverse;
};
Normalised normalise_(at::Tensor a) {
  const at::Tensor sum = a.sum(-1, true), empty = sum == 0;
  const at::Tensor inverse = sum.masked_fill(empty, 1).reciprocal().masked_fill(empty, 0);
  return {a.mul_(inverse), inverse};
}

// (weights, inverse) of phi_q [B,Hkv,G,T,F] and phi_k [B,Hkv,1,S,F]; 0 where `future` [T,S] is
// true. The backward is made of differentiable operators on its own results.
struct NormalisedProduct : torch::autograd::Function<NormalisedProduct> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& phi_q,
                               const at::Tensor& phi_k, const OptTensor& future) {
    at::AutoDispatchBelowADInplaceOrView guard;
    at::Tensor a = at::matmul(phi_q, phi_k.transpose(-1, -2));
    if (future) a.masked_fill_(*future, 0);
    const Normalised n = normalise_(a);
    ctx->save_for_backward({phi_q, phi_k, future.value_or(at::Tensor()), n.weights, n.inverse});
    ctx->set_materialize_grads(false);
    return {n.weights, n.inverse};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &phi_q = saved[0], &phi_k = saved[1], &future = saved[2], &weights = saved[3],
                     &inverse = saved[4];
    at::Tensor grad_a;  // of the product: [B,Hkv,G,T,S]
    if (grads[0].defined()) grad_a = (grads[0] - (grads[0] * weights).sum(-1, true)) * inverse;
    if (grads[1].defined()) {
      const at::Tensor grad_sum = -grads[1] * inverse.square();
      grad_a = grad_a.defined() ? grad_a + grad_sum : grad_sum.expand_as(weights);
    }
    if (!grad_a.defined()) return {{}, {}, {}};
    if (future.defined()) grad_a = grad_a.masked_fill(future, 0);
    const at::Tensor grad_k = at::matmul(grad_a.transpose(-1, -2), phi_q);  // [B,Hkv,G,S,F]
    return {at::matmul(grad_a, phi_k), grad_k.size(2) == 1 ? grad_k : grad_k.sum(2, true), {}};
  }
};

}  // namespace

at::Tensor hedgehog_weights_composite(const HedgehogInputs& in) {
  const int64_t T = in.q.size(2), S = in.k.size(2), kv_heads = in.k.size(1);
  const bool is_exp = feature_map(in) == FeatureMap::kExp;
  at::Tensor phi_q, phi_k;  // [B,Hkv,G,T,F], [B,Hkv,1,S,F]: 0 where a key is removed
  GroupedKeys keys;
  if (is_exp) {
    const ExpInputs x = exp_inputs(in, in.k);
    if (in.is_causal) {  // references differ from row to row
      const at::Tensor a = exp_weights_causal(x.a, x.b, CausalSpan(T, S));
      const at::Tensor sum = a.sum(-1, true), empty = sum == 0;
      const at::Tensor poisoned = poisoned_queries(in, x.keys).unsqueeze(-1);
      return (a / sum.masked_fill(empty, 1)).masked_fill(poisoned, std::nan("")).flatten(1, 2);
    }
    const ExpFeatures phi = exp_features(x.a, x.b);
    keys = x.keys;
    phi_q = phi.q;
    phi_k = phi.k;
  } else {
    const LinearInputs features = feature_inputs(in, in.k);
    keys = clean_keys(in.k, in.k, in.key_mask);
    phi_q = group_heads(features.phi_q, kv_heads);
    phi_k = features.phi_k.unsqueeze(2);
    if (keys.keep.defined()) phi_k = phi_k.masked_fill(keys.keep.logical_not(), 0);
  }
  phi_q = phi_q.masked_fill(poisoned_queries(in, keys).unsqueeze(-1), std::nan(""));
  OptTensor future;
  if (in.is_causal) future = causal_keep(T, S, phi_q.options()).logical_not();
  if (!records_gradient({phi_q, phi_k})) {
    at::Tensor a = at::matmul(phi_q, phi_k.transpose(-1, -2));
    if (future) a.masked_fill_(*future, 0);
    return normalise_(a).weights.flatten(1, 2);
  }
  return NormalisedProduct::apply(phi_q, phi_k, future)[0].flatten(1, 2);
}

}  // namespace hedgerow::ops
