// Talking heads whose dynamic terms are projections of tokens. A helper made of operators
// (CompositeImplicitAutograd): no kernel, Meta or backward of its own.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <string>

#include "ops/common/masks.h"
#include "ops/common/struct_operator.h"
#include "ops/talking_heads_attention/talking_heads_attention.h"

namespace hedgerow::ops {
namespace {

constexpr const char* kOp = "dynamic_talking_heads_attention";

struct DynamicInputs : DynamicTalkingHeadsOptions {
  at::Tensor q, k, v;

  static auto fields(auto& in) {
    return std::tie(in.q, in.k, in.v, in.logits_proj, in.weights_proj, in.x, in.m, in.x2l, in.m2l,
                    in.x2w, in.m2w, in.attn_mask, in.is_causal, in.scale, in.alpha, in.dropout_p,
                    in.dropout_seed);
  }
};

struct NamedOptional {
  const char* name;
  const OptTensor& tensor;
};

// project_tokens, none without a projection.
OptTensor project(NamedOptional tokens, NamedOptional projection, NamedOptional added_to) {
  if (!projection.tensor) return {};
  for (const NamedOptional& needed : {tokens, added_to})
    HEDGEROW_OP_CHECK(kOp, needed.tensor, projection.name, " needs ", needed.name, "; got none");
  const at::Tensor &t = *tokens.tensor, &p = *projection.tensor;
  check_inputs(kOp, {{tokens.name, t}, {projection.name, p}});
  check_rank(kOp, {tokens.name, t}, 3, "[B, tokens, d_model]");
  HEDGEROW_OP_CHECK(kOp, p.dim() == 3 && p.sym_size(0) == t.sym_size(2), projection.name,
                    " must have 3 dimensions, the first the width of ", tokens.name, "; got ",
                    projection.name, " shape ", shape_text(p), " and ", tokens.name, " shape ",
                    shape_text(t));
  return project_tokens(t, p);
}

// The tokens of one side are [B,N,..], N that of q or k.
void check_tokens(NamedOptional tokens, Named rows, const char* layout) {
  if (!tokens.tensor) return;
  check_rank(kOp, {tokens.name, *tokens.tensor}, 3, layout);
  HEDGEROW_OP_CHECK(kOp,
                    tokens.tensor->sym_size(0) == rows.tensor.sym_size(0) &&
                        tokens.tensor->sym_size(1) == rows.tensor.sym_size(2),
                    tokens.name, " must be ", layout, " as ", rows.name, " is; got ", tokens.name,
                    " shape ", shape_text(*tokens.tensor), " and ", rows.name, " shape ",
                    shape_text(rows.tensor));
}

at::Tensor attention_of_tokens(const DynamicInputs& in) {
  check_rank(kOp, {"q", in.q}, 4, "[B, Hk, T, D]");
  check_rank(kOp, {"k", in.k}, 4, "[B, Hkk, S, D]");
  const NamedOptional x{"x", in.x}, m{"m", in.m};
  check_tokens(x, {"q", in.q}, "[B, T, d_model]");
  check_tokens(m, {"k", in.k}, "[B, S, d_model]");
  const NamedOptional logits{"logits_proj", in.logits_proj},
      weights{"weights_proj", in.weights_proj};
  const TalkingHeadsInputs projected{{.logits_proj = in.logits_proj,
                                      .weights_proj = in.weights_proj,
                                      .attn_mask = in.attn_mask,
                                      .is_causal = in.is_causal,
                                      .scale = in.scale,
                                      .alpha = in.alpha,
                                      .x_logits = project(x, {"x2l", in.x2l}, logits),
                                      .m_logits = project(m, {"m2l", in.m2l}, logits),
                                      .x_weights = project(x, {"x2w", in.x2w}, weights),
                                      .m_weights = project(m, {"m2w", in.m2w}, weights),
                                      .dropout_p = in.dropout_p,
                                      .dropout_seed = in.dropout_seed},
                                     in.q,
                                     in.k,
                                     in.v};
  check_talking_heads_attention(kOp, projected);
  return talking_heads_attention(projected);
}

}  // namespace

at::Tensor dynamic_talking_heads_attention(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v,
                                           const DynamicTalkingHeadsOptions& options) {
  static const StructOperator<at::Tensor(const DynamicInputs&)> op(
      "hedgerow::dynamic_talking_heads_attention");
  return op(DynamicInputs{options, q, k, v});
}

}  // namespace hedgerow::ops

TORCH_LIBRARY_FRAGMENT(hedgerow, m) {
  m.def(
      "dynamic_talking_heads_attention(Tensor q, Tensor k, Tensor v, Tensor? logits_proj, "
      "Tensor? weights_proj, Tensor? x=None, Tensor? m=None, Tensor? x2l=None, Tensor? m2l=None, "
      "Tensor? x2w=None, Tensor? m2w=None, Tensor? attn_mask=None, bool is_causal=False, "
      "float? scale=None, Tensor? alpha=None, float dropout_p=0.0, int? dropout_seed=None) -> "
      "Tensor",
      {at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(hedgerow, CompositeImplicitAutograd, m) {
  m.impl("dynamic_talking_heads_attention",
         hedgerow::ops::kStructKernel<&hedgerow::ops::attention_of_tokens>);
}
