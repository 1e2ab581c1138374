// The operators of attention from partial computation: scores of the selected keys, then attention
// whose queries they are and whose keys are the rows of R.
#include "ops/partial_attention/partial_attention.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/common/dispatch.h"
#include "ops/common/struct_operator.h"

namespace hedgerow::ops {
namespace {

// attn_mask with `added` [1 or B,1 or H,1 or T,S] in its scores, both of what they were: -inf where
// it excludes, finite elsewhere. Differentiable in both.
OptTensor with_scores(const OptTensor& attn_mask, const at::Tensor& added) {
  if (!attn_mask) return added;
  at::Tensor excluded, scores = added;
  if (attn_mask->scalar_type() == at::kBool) {
    excluded = attn_mask->bitwise_not();
  } else {
    excluded = attn_mask->detach().eq(-INFINITY);
    const double lowest = lowest_finite(added.scalar_type());
    at::Tensor bias = attn_mask->masked_fill(excluded, 0);
    if (bias.scalar_type() == at::kDouble) bias = bias.clamp_min(lowest);  // where it narrows
    bias = bias.to(added.scalar_type());
    scores = added.add(bias).clamp_min(lowest);
  }
  return scores.masked_fill(excluded, -INFINITY);
}

// softmax or entmax attention of q [B,H,T,X], k [B,Hkv or H,S,X] and in.v. Scores are as they come.
at::Tensor attend(const PartialInputs& in, const at::Tensor& q, const at::Tensor& k,
                  const OptTensor& mask) {
  const at::Tensor v = in.v.to(q.scalar_type());
  at::Tensor out;
  if (k.sym_size(1) != v.sym_size(1))  // they may differ where heads talk, or need not
    out = talking_heads_attention(q, k, v,
                                  {.attn_mask = mask,
                                   .is_causal = in.is_causal,
                                   .scale = 1.0,
                                   .alpha = in.alpha,
                                   .dropout_p = in.dropout_p,
                                   .dropout_seed = in.dropout_seed});
  else if (in.alpha)
    out = entmax_attention(q, k, v, *in.alpha, mask, in.is_causal, 1.0, in.dropout_p,
                           in.dropout_seed);
  else
    out = softmax_attention(q, k, v, mask, in.is_causal, 1.0, in.dropout_p, in.dropout_seed);
  return out.to(in.q.scalar_type());
}

// keys: selected_keys'.
at::Tensor attention_of_selected(const PartialInputs& in, const at::Tensor& keys) {
  const at::Tensor centred = centred_scores(in, keys);
  const at::ScalarType dtype = centred.scalar_type();
  at::Tensor added;
  if (in.mean) added = with_heads_and_queries(in.mean->to(dtype), 1).unsqueeze(0);
  const c10::SymInt batch = in.v.sym_size(0), kv_heads = in.v.sym_size(1), S = in.v.sym_size(2);
  if (in.reconstruction.dim() < 4) {
    const at::Tensor rows = in.reconstruction.to(dtype).contiguous();  // of [S,P] or [H,S,P]
    const at::Tensor k = rows.expand_symint(
        {batch, rows.dim() == 2 ? kv_heads : rows.sym_size(0), S, rows.sym_size(-1)});
    return attend(in, centred, k,
                  added.defined() ? with_scores(in.attn_mask, added) : in.attn_mask);
  }
  // all scores are in the mask, for queries and keys of width 1 that add nothing
  const at::Tensor scores =
      reconstructed_scores(centred, in.reconstruction, in.attn_mask || in.is_causal);
  const at::Tensor none = at::zeros({1, 1, 1, 1}, centred.options().requires_grad(false));
  return attend(in, none.expand_symint({batch, in.q.sym_size(1), in.q.sym_size(2), 1}),
                none.expand_symint({batch, kv_heads, S, 1}),
                with_scores(in.attn_mask, added.defined() ? scores + added : scores));
}

at::Tensor attention_of_all(const PartialInputs& in) {
  check_partial_attention("partial_attention", in);
  return attention_of_selected(in, selected_keys(in.k, in.positions, in.q.sym_size(1)));
}

at::Tensor attention_of_projected(const PartialInputs& in) {
  check_partial_attention_selected("partial_attention_selected", in);
  return attention_of_selected(in, in.k.unsqueeze(2));
}

using PartialOperator = StructOperator<at::Tensor(const PartialInputs&)>;

}  // namespace

at::Tensor partial_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& positions, const at::Tensor& reconstruction,
                             const PartialOptions& options) {
  static const PartialOperator op("hedgerow::partial_attention");
  return op({options, q, k, v, positions, reconstruction});
}

at::Tensor partial_attention_selected(const at::Tensor& q, const at::Tensor& k_selected,
                                      const at::Tensor& v, const at::Tensor& positions,
                                      const at::Tensor& reconstruction,
                                      const PartialOptions& options) {
  static const PartialOperator op("hedgerow::partial_attention_selected");
  return op({options, q, k_selected, v, positions, reconstruction});
}

}  // namespace hedgerow::ops

TORCH_LIBRARY_FRAGMENT(hedgerow, m) {
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  const std::string rest =
      "Tensor v, Tensor positions, Tensor reconstruction, Tensor? mean=None, "
      "Tensor? attn_mask=None, bool is_causal=False, float? scale=None, Tensor? alpha=None, "
      "float dropout_p=0.0, int? dropout_seed=None) -> Tensor";
  m.def(("partial_attention(Tensor q, Tensor k, " + rest).c_str(), tags);
  m.def(("partial_attention_selected(Tensor q, Tensor k_selected, " + rest).c_str(), tags);
}
TORCH_LIBRARY_IMPL(hedgerow, CompositeImplicitAutograd, m) {
  using namespace hedgerow::ops;
  m.impl("partial_attention", kStructKernel<&attention_of_all>);
  m.impl("partial_attention_selected", kStructKernel<&attention_of_projected>);
}
