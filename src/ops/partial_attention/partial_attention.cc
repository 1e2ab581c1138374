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

// R common to all queries is the keys of the attention. So is a mean common to them: one more
// column, for which every query has a 1.
at::Tensor attention_of_common(const PartialInputs& in, const at::Tensor& centred) {
  const at::ScalarType dtype = centred.scalar_type();
  at::Tensor queries = centred, keys = in.reconstruction.to(dtype);  // [S,P] or [H,S,P]
  OptTensor mask = in.attn_mask;
  if (in.mean && in.mean->dim() == 3) {
    mask = with_scores(mask, in.mean->to(dtype).unsqueeze(0));
  } else if (in.mean) {
    at::Tensor column = in.mean->to(dtype).unsqueeze(-1);  // [S,1] or [H,S,1]
    const bool by_head = keys.dim() == 3 || column.dim() == 3;
    const auto wide = [&](const at::Tensor& t) {
      return by_head && t.dim() == 2
                 ? t.expand_symint({in.q.sym_size(1), t.sym_size(0), t.sym_size(1)})
                 : t;
    };
    keys = at::cat({wide(keys), wide(column)}, -1);
    const at::Tensor one = at::ones({1, 1, 1, 1}, queries.options().requires_grad(false));
    queries = at::cat({queries, one.expand_symint({queries.sym_size(0), queries.sym_size(1),
                                                   queries.sym_size(2), 1})},
                      -1);
  }
  const c10::SymInt heads = keys.dim() == 2 ? in.v.sym_size(1) : keys.sym_size(0);
  return attend(in, queries,
                keys.contiguous().expand_symint(  // of one copy, whatever B and Hkv
                    {in.v.sym_size(0), heads, in.v.sym_size(2), keys.sym_size(-1)}),
                mask);
}

// R of its own for each query: all scores are in the mask, beside queries and keys of one 0.
at::Tensor attention_of_own(const PartialInputs& in, const at::Tensor& centred) {
  at::Tensor scores =
      reconstructed_scores(centred, in.reconstruction, in.attn_mask || in.is_causal);
  if (in.mean) scores = scores + with_heads_and_queries(in.mean->to(scores.scalar_type()), 1);
  const at::Tensor none = at::zeros({1, 1, 1, 1}, scores.options().requires_grad(false));
  const at::Tensor &q = in.q, &v = in.v;
  return attend(in, none.expand_symint({q.sym_size(0), q.sym_size(1), q.sym_size(2), 1}),
                none.expand_symint({v.sym_size(0), v.sym_size(1), v.sym_size(2), 1}),
                with_scores(in.attn_mask, scores));
}

// keys: selected_keys'.
at::Tensor attention_of_selected(const PartialInputs& in, const at::Tensor& keys) {
  const at::Tensor centred = centred_scores(in, keys);
  return in.reconstruction.dim() < 4 ? attention_of_common(in, centred)
                                     : attention_of_own(in, centred);
}

at::Tensor attention_of_all(const PartialInputs& in) {
  check_partial_attention("partial_attention", in);
  return attention_of_selected(in, selected_keys(in.k, in.positions, in.q.sym_size(1)));
}

at::Tensor attention_of_projected(const PartialInputs& in) {
  check_partial_attention_selected("partial_attention_selected", in);
  return attention_of_selected(in, in.k);
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
