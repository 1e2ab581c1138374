#include "ops/entmax_attention/entmax_attention.h"

#include <torch/library.h>

#include "hedgerow/kernels/entmax_attention.h"
#include "hedgerow/ops.h"
#include "ops/common/dispatch.h"
#include "ops/entmax/entmax.h"

namespace hedgerow::ops {
namespace {

constexpr int64_t kNarrowKeys = 65536;  // keys whose index takes 2 bytes

}  // namespace

void check_head_alpha(const char* op, const at::Tensor& alpha, const c10::SymInt& heads,
                      const at::Tensor& like) {
  check_alpha_tensor(op, alpha, like);
  HEDGEROW_OP_CHECK(op, alpha.dim() == 0 || (alpha.dim() == 1 && alpha.sym_size(0) == heads),
                    "alpha must be a scalar or one per head [H] = [", heads, "]; got shape ",
                    shape_text(alpha));
}

void check_entmax_attention(const char* op, const EntmaxInputs& in) {
  check_inputs(op, {{"q", in.q}, {"k", in.k}, {"v", in.v}});
  check_qkv(op, {"q", in.q}, {"k", in.k}, {"v", in.v});
  check_head_alpha(op, in.alpha, in.q.sym_size(1), in.q);
  check_attn_mask(op, in.attn_mask, in.q.sym_size(0), in.q.sym_size(1), in.q.sym_size(2),
                  in.k.sym_size(2), in.q);
  check_scale(op, in.scale);
  check_dropout(op, in.dropout_p, in.dropout_seed);
}

void check_entmax_attention_backward(const at::Tensor& grad, const EntmaxInputs& in,
                                     const EntmaxSaved& saved, bool mask_grad) {
  const char* op = "entmax_attention_backward";
  check_entmax_attention(op, in);
  const at::Tensor &q = in.q, &v = in.v;
  const c10::SymInt sizes[4] = {q.sym_size(0), q.sym_size(1), q.sym_size(2), v.sym_size(3)};
  check_inputs(op, {{"grad", grad}, {"q", q}});
  check_shape(op, {"grad", grad}, sizes, "[B, H, T, Dv]");
  const c10::SymInt keys = in.k.sym_size(2), capacity = support_capacity(keys);
  check_shape(op, {"stats", saved.stats}, saved_sizes(q, kernels::kEntmaxRowStats), "[B, H, T, 3]");
  check_shape(op, {"index", saved.index}, saved_sizes(q, capacity), "[B, H, T, C]");
  check_shape(op, {"weight", saved.weight}, saved_sizes(q, capacity), "[B, H, T, C]");
  HEDGEROW_OP_CHECK(
      op,
      saved.stats.scalar_type() == at::kFloat && saved.weight.scalar_type() == at::kFloat &&
          saved.index.scalar_type() == support_index_dtype(keys),
      "stats and weight must be float32 and index ", dtype_text(support_index_dtype(keys)),
      "; got ", dtype_text(saved.stats.scalar_type()), ", ", dtype_text(saved.weight.scalar_type()),
      " and ", dtype_text(saved.index.scalar_type()));
  HEDGEROW_OP_CHECK(op, !mask_grad || (in.attn_mask && in.attn_mask->is_floating_point()),
                    "mask_grad needs a floating attn_mask; got ",
                    in.attn_mask ? dtype_text(in.attn_mask->scalar_type()) : std::string("none"));
}

std::vector<c10::SymInt> saved_sizes(const at::Tensor& q, const c10::SymInt& last) {
  return {q.sym_size(0), q.sym_size(1), q.sym_size(2), last};
}

// The kernels' capacity for a symbolic number of keys: all of them up to a constant.
c10::SymInt support_capacity(const c10::SymInt& keys) {
  const int64_t most =
      kernels::entmax_support_capacity(keys <= kNarrowKeys ? kNarrowKeys : kNarrowKeys + 1);
  return keys <= most ? keys : c10::SymInt(most);
}

at::ScalarType support_index_dtype(const c10::SymInt& keys) {
  return keys <= kNarrowKeys ? at::kShort : at::kInt;
}

at::Tensor entmax_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& alpha, const OptTensor& attn_mask, bool is_causal,
                            std::optional<double> scale, double dropout_p,
                            std::optional<int64_t> dropout_seed) {
  static const auto op = find_op<decltype(entmax_attention)>("hedgerow::entmax_attention");
  return op.call(q, k, v, alpha, attn_mask, is_causal, scale, dropout_p, dropout_seed);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> entmax_attention_forward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& alpha,
    const OptTensor& attn_mask, bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<int64_t> dropout_seed) {
  static const auto op =
      find_op<decltype(entmax_attention_forward)>("hedgerow::entmax_attention_forward");
  return op.call(q, k, v, alpha, attn_mask, is_causal, scale, dropout_p, dropout_seed);
}

EntmaxAttentionGrads entmax_attention_backward(const at::Tensor& grad, const at::Tensor& q,
                                               const at::Tensor& k, const at::Tensor& v,
                                               const at::Tensor& alpha, const at::Tensor& stats,
                                               const at::Tensor& index, const at::Tensor& weight,
                                               const OptTensor& attn_mask, bool is_causal,
                                               std::optional<double> scale, double dropout_p,
                                               std::optional<int64_t> dropout_seed, bool alpha_grad,
                                               bool mask_grad) {
  static const auto op =
      find_op<decltype(entmax_attention_backward)>("hedgerow::entmax_attention_backward");
  return op.call(grad, q, k, v, alpha, stats, index, weight, attn_mask, is_causal, scale, dropout_p,
                 dropout_seed, alpha_grad, mask_grad);
}

}  // namespace hedgerow::ops

TORCH_LIBRARY_FRAGMENT(hedgerow, m) {
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  m.def(
      "entmax_attention(Tensor q, Tensor k, Tensor v, Tensor alpha, Tensor? attn_mask=None, bool "
      "is_causal=False, float? scale=None, float dropout_p=0.0, int? dropout_seed=None) -> Tensor",
      tags);
  m.def(
      "entmax_attention_forward(Tensor q, Tensor k, Tensor v, Tensor alpha, Tensor? attn_mask, "
      "bool is_causal, float? scale, float dropout_p, int? dropout_seed) -> "
      "(Tensor out, Tensor stats, Tensor index, Tensor weight)",
      tags);
  m.def(
      "entmax_attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor alpha, Tensor "
      "stats, Tensor index, Tensor weight, Tensor? attn_mask, bool is_causal, float? scale, float "
      "dropout_p, int? dropout_seed, bool alpha_grad, bool mask_grad) -> "
      "(Tensor grad_q, Tensor grad_k, Tensor grad_v, Tensor grad_alpha, Tensor grad_mask)",
      tags);
}
