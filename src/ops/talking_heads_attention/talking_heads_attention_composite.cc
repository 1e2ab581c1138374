// The definition, in ATen operators: any device, differentiable twice, O(T S) memory.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/common/composite_gradient.h"
#include "ops/common/dispatch.h"
#include "ops/common/masks.h"
#include "ops/common/scores.h"
#include "ops/common/struct_operator.h"
#include "ops/entmax_attention/entmax_attention.h"
#include "ops/softmax_attention/softmax_attention.h"
#include "ops/talking_heads_attention/talking_heads_attention.h"

namespace hedgerow::ops {
namespace {

// What mixes heads, with entries that belong to unseen queries and keys out of the way.
struct Mixing {
  OptTensor proj;    // [I,O]
  OptTensor x_term;  // [B,T,I,O]
  OptTensor m_term;  // [B,S,I,O]
};

// [B,I,T,S] -> [B,O,T,S], term by term: nothing of size T S I O is formed.
at::Tensor mix_heads(const at::Tensor& t, const Mixing& by) {
  if (!by.proj) return t;
  at::Tensor mixed = by.x_term ? at::einsum("bits,btio->bots", {t, *by.proj + *by.x_term})
                               : at::einsum("bits,io->bots", {t, *by.proj});
  if (by.m_term) mixed = mixed + at::einsum("bits,bsio->bots", {t, *by.m_term});
  return mixed;
}

// keep over softmax heads -> boolean [B or 1,1,T or 1,S or 1]: some head sees the key.
at::Tensor seen_by_some_head(at::Tensor keep) {
  while (keep.defined() && keep.dim() < 4) keep = keep.unsqueeze(0);
  return keep.defined() ? keep.any(1, true) : keep;
}

// Boolean [B,1,S]: something of the key is not finite.
at::Tensor bad_keys(const TalkingHeadsInputs& in) {
  at::Tensor bad = not_finite(in.k, {}).any(1, true);
  if (in.v.defined()) bad = bad.logical_or(not_finite(in.v, {}).any(1, true));
  for (const OptTensor& term : {in.m_logits, in.m_weights})  // [B,S,I,O]
    if (term) bad = bad.logical_or(not_finite(term->flatten(2), {}).unsqueeze(1));
  return bad;
}

Mixing mixing(const OptTensor& proj, const OptTensor& x_term, const OptTensor& m_term,
              const at::Tensor& blind, at::ScalarType dtype) {
  Mixing by;
  if (proj) by.proj = proj->to(dtype);
  if (x_term) by.x_term = x_term->to(dtype);
  if (x_term && blind.defined()) by.x_term = by.x_term->masked_fill(blind.transpose(1, 2), 0);
  if (m_term) by.m_term = finite_or_zero(m_term->to(dtype));
  return by;
}

}  // namespace

at::Tensor mixed_weights_composite(const TalkingHeadsInputs& in) {
  const at::ScalarType dtype = accumulate_dtype(in.q.scalar_type());
  const MaskTerms terms = split_mask(in.attn_mask, in.is_causal, in.q.size(2), in.k.size(2),
                                     in.q.options().dtype(dtype));
  MaskedScores m =
      visible_scores(in.q, in.k, seen_by_some_head(terms.keep), bad_keys(in), in.scale);
  const at::Tensor blind = m.blind;  // [B or 1,1,T or 1,1]: no head sees a key
  m.scores = mix_heads(m.scores, mixing(in.logits_proj, in.x_logits, in.m_logits, blind, dtype));
  m.scores = add_bias(m.scores, terms.bias);  // [B,H,T,S]
  m.keep = terms.keep;
  if (m.keep.defined()) m.blind = m.keep.any(-1, true).logical_not();

  const at::Tensor weights =
      in.alpha ? entmax_of_scores(m, *in.alpha) : softmax_of_scores(m, false).weights;
  return mix_heads(weights, mixing(in.weights_proj, in.x_weights, in.m_weights, blind, dtype));
}

at::Tensor talking_heads_attention_composite(const TalkingHeadsInputs& in) {
  at::Tensor weights = mixed_weights_composite(in);
  if (in.dropout_p > 0)
    weights = weights * dropout_factors(weights.size(0), weights.size(1), weights.size(2),
                                        weights.size(3), in.dropout_p, *in.dropout_seed,
                                        weights.options());
  const at::Tensor values =
      expand_heads(finite_or_zero(in.v.to(weights.scalar_type())), weights.size(1));  // [B,Hv,S,Dv]
  return at::matmul(weights, values).to(in.q.scalar_type());
}

TalkingHeadsGrads talking_heads_attention_backward_composite(const TalkingHeadsInputs& in,
                                                             const at::Tensor& grad,
                                                             const WantedGrads& wanted) {
  std::vector<at::Tensor> inputs = {in.q, in.k, in.v};
  for (const OptTensor* t : optional_tensors(in)) inputs.push_back(t->value_or(at::Tensor()));
  std::vector<bool> asked(3, true);
  asked.insert(asked.end(), wanted.begin(), wanted.end());
  const auto forward = [&](const std::vector<at::Tensor>& t) -> std::vector<at::Tensor> {
    TalkingHeadsInputs same = in;
    std::tie(same.q, same.k, same.v) = std::tie(t[0], t[1], t[2]);
    const auto tensors = optional_tensors(same);
    for (size_t i = 0; i < kNumOptional; i++) *tensors[i] = optional(t[3 + i]);
    return {talking_heads_attention_composite(same)};
  };
  const std::vector<at::Tensor> grads = composite_gradient(forward, inputs, asked, {grad});
  GradArray result;
  for (size_t i = 0; i < kNumGrads; i++)
    result[i] = asked[i] ? or_zeros(grads[i], inputs[i])
                         : at::empty({0}, in.q.options().requires_grad(false));
  return std::tuple_cat(result);
}

namespace {

at::Tensor attention_any(const TalkingHeadsInputs& in) {
  check_talking_heads_attention("talking_heads_attention", in);
  return talking_heads_attention_composite(in);
}

TalkingHeadsGrads backward_any(const TalkingHeadsInputs& in, const at::Tensor& grad,
                               WantedGrads wanted) {
  check_talking_heads_backward(in, grad, wanted);
  return talking_heads_attention_backward_composite(in, grad, wanted);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CompositeExplicitAutograd, m) {
  using namespace hedgerow::ops;
  m.impl("talking_heads_attention", kStructKernel<&attention_any>);
  m.impl("talking_heads_attention_backward", kStructKernel<&backward_any>);
}
