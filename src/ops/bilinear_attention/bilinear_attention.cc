// General bilinear multi-head attention, and the parameters with which it is a layer of heads.
// Contract: hedgerow/ops.h. Helpers made of operators (CompositeImplicitAutograd): x p are queries
// for which the tokens m are the keys and the values of all heads.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>

#include "hedgerow/ops.h"
#include "ops/common/checks.h"
#include "ops/common/dispatch.h"
#include "ops/common/masks.h"

namespace hedgerow::ops {

at::Tensor bilinear_attention(const at::Tensor& x, const at::Tensor& m, const at::Tensor& p,
                              const at::Tensor& p_out, const OptTensor& attn_mask, bool is_causal,
                              const OptTensor& alpha, double dropout_p,
                              std::optional<int64_t> dropout_seed) {
  static const auto op = find_op<decltype(bilinear_attention)>("hedgerow::bilinear_attention");
  return op.call(x, m, p, p_out, attn_mask, is_causal, alpha, dropout_p, dropout_seed);
}

std::tuple<at::Tensor, at::Tensor> bilinear_from_talking_heads(
    const at::Tensor& wq, const at::Tensor& wk, const at::Tensor& wv, const at::Tensor& wo,
    const OptTensor& logits_proj, const OptTensor& weights_proj, std::optional<double> scale) {
  static const auto op =
      find_op<decltype(bilinear_from_talking_heads)>("hedgerow::bilinear_from_talking_heads");
  return op.call(wq, wk, wv, wo, logits_proj, weights_proj, scale);
}

namespace {

at::Tensor attention_of_tokens(const at::Tensor& x, const at::Tensor& m, const at::Tensor& p,
                               const at::Tensor& p_out, const OptTensor& attn_mask, bool is_causal,
                               const OptTensor& alpha, double dropout_p,
                               std::optional<int64_t> dropout_seed) {
  const char* op = "bilinear_attention";
  check_inputs(op, {{"x", x}, {"m", m}, {"p", p}, {"p_out", p_out}});
  check_rank(op, {"x", x}, 3, "[B, T, dX]");
  check_rank(op, {"m", m}, 3, "[B, S, dM]");
  check_rank(op, {"p_out", p_out}, 3, "[H, dM, dY]");
  check_same_size(op, {"x", x}, {"m", m}, 0, "batch");
  const c10::SymInt heads = p_out.sym_size(0), width = m.sym_size(2);
  check_shape(op, {"p", p}, {heads, x.sym_size(2), width}, "[H, dX, dM]");
  check_shape(op, {"p_out", p_out}, {heads, width, p_out.sym_size(2)}, "[H, dM, dY]");
  check_attn_mask(op, attn_mask, x.sym_size(0), heads, x.sym_size(1), m.sym_size(1), x);
  check_dropout(op, dropout_p, dropout_seed);
  const at::Tensor queries = project_tokens(x, p.transpose(0, 1)).transpose(1, 2);  // [B,H,T,dM]
  const at::Tensor tokens = m.unsqueeze(1);  // one key and value head, [B,1,S,dM]
  const at::Tensor read =                    // [B,H,T,dM]
      alpha ? entmax_attention(queries, tokens, tokens, *alpha, attn_mask, is_causal, 1.0,
                               dropout_p, dropout_seed)
            : softmax_attention(queries, tokens, tokens, attn_mask, is_causal, 1.0, dropout_p,
                                dropout_seed);
  return at::einsum("bhtm,hmy->bty", {read, p_out});
}

// sum over heads a of the products left_a right_a, mixed: [A,I,K], [A,K,J], proj [A,H] -> [H,I,J].
at::Tensor mixed_products(const at::Tensor& left, const at::Tensor& right, const OptTensor& proj) {
  const at::Tensor products = at::matmul(left, right);
  return proj ? at::einsum("aij,ah->hij", {products, *proj}) : products;
}

// [rows, columns] with the given number of rows, or any number of columns, of the layer's dtype.
void check_projection(const char* op, Named t, int64_t dim, Named layer) {
  check_inputs(op, {t, layer});
  check_rank(op, t, 2, dim == 0 ? "[Hk, H]" : "[H, Hv]");
  HEDGEROW_OP_CHECK(op, t.tensor.sym_size(dim) == layer.tensor.sym_size(0), t.name,
                    " must have the heads of ", layer.name, " on dimension ", dim, "; got ", t.name,
                    " shape ", shape_text(t.tensor), " and ", layer.name, " shape ",
                    shape_text(layer.tensor));
}

std::tuple<at::Tensor, at::Tensor> parameters_of_layer(const at::Tensor& wq, const at::Tensor& wk,
                                                       const at::Tensor& wv, const at::Tensor& wo,
                                                       const OptTensor& logits_proj,
                                                       const OptTensor& weights_proj,
                                                       std::optional<double> scale) {
  const char* op = "bilinear_from_talking_heads";
  check_inputs(op, {{"wq", wq}, {"wk", wk}, {"wv", wv}, {"wo", wo}});
  check_rank(op, {"wq", wq}, 3, "[Hk, dX, D]");
  check_rank(op, {"wk", wk}, 3, "[Hk, dM, D]");
  check_rank(op, {"wv", wv}, 3, "[Hv, dM, Dv]");
  check_rank(op, {"wo", wo}, 3, "[Hv, Dv, dY]");
  check_same_size(op, {"wq", wq}, {"wk", wk}, 0, "number of heads");
  check_same_size(op, {"wq", wq}, {"wk", wk}, 2, "width");
  check_same_size(op, {"wk", wk}, {"wv", wv}, 1, "token width");
  check_shape(op, {"wo", wo}, {wv.sym_size(0), wv.sym_size(2), wo.sym_size(2)}, "[Hv, Dv, dY]");
  if (logits_proj) check_projection(op, {"logits_proj", *logits_proj}, 0, {"wq", wq});
  if (weights_proj) check_projection(op, {"weights_proj", *weights_proj}, 1, {"wv", wv});
  check_scale(op, scale);
  const int64_t width = wq.sym_size(2).guard_int(__FILE__, __LINE__);
  const double factor = scale ? *scale : 1.0 / std::sqrt(static_cast<double>(width));
  const at::Tensor p = mixed_products(wq * factor, wk.transpose(1, 2), logits_proj);
  const at::Tensor p_out =
      mixed_products(wv, wo, weights_proj ? OptTensor(weights_proj->t()) : OptTensor());
  HEDGEROW_OP_CHECK(op, p.sym_size(0) == p_out.sym_size(0),
                    "the projections must give one number of softmax heads H; got ", p.sym_size(0),
                    " of wq and logits_proj, and ", p_out.sym_size(0), " of weights_proj and wv");
  return {p, p_out};
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_FRAGMENT(hedgerow, m) {
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  m.def(
      "bilinear_attention(Tensor x, Tensor m, Tensor p, Tensor p_out, Tensor? attn_mask=None, "
      "bool is_causal=False, Tensor? alpha=None, float dropout_p=0.0, int? dropout_seed=None) -> "
      "Tensor",
      tags);
  m.def(
      "bilinear_from_talking_heads(Tensor wq, Tensor wk, Tensor wv, Tensor wo, "
      "Tensor? logits_proj=None, Tensor? weights_proj=None, float? scale=None) -> "
      "(Tensor p, Tensor p_out)",
      tags);
}
TORCH_LIBRARY_IMPL(hedgerow, CompositeImplicitAutograd, m) {
  m.impl("bilinear_attention", hedgerow::ops::attention_of_tokens);
  m.impl("bilinear_from_talking_heads", hedgerow::ops::parameters_of_layer);
}
