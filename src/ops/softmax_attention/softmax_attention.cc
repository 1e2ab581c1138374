#include "ops/softmax_attention/softmax_attention.h"

#include <torch/library.h>

#include "hedgerow/ops.h"
#include "ops/common/dispatch.h"

namespace hedgerow::ops {

void check_softmax_attention(const char* op, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const OptTensor& attn_mask,
                             std::optional<double> scale, double dropout_p,
                             std::optional<int64_t> dropout_seed) {
  check_inputs(op, {{"q", q}, {"k", k}, {"v", v}});
  check_qkv(op, {"q", q}, {"k", k}, {"v", v});
  check_attn_mask(op, attn_mask, q.sym_size(0), q.sym_size(1), q.sym_size(2), k.sym_size(2), q);
  check_scale(op, scale);
  check_dropout(op, dropout_p, dropout_seed);
}

void check_softmax_backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& v,
                            const at::Tensor& out, const at::Tensor& lse,
                            const OptTensor& attn_mask, bool mask_grad) {
  const char* op = "softmax_attention_backward";
  const c10::SymInt sizes[4] = {q.sym_size(0), q.sym_size(1), q.sym_size(2), v.sym_size(3)};
  check_inputs(op, {{"grad", grad}, {"q", q}, {"out", out}});
  check_shape(op, {"grad", grad}, sizes, "[B, H, T, Dv]");
  check_shape(op, {"out", out}, sizes, "[B, H, T, Dv]");
  check_shape(op, {"lse", lse}, c10::SymIntArrayRef(sizes, 3), "[B, H, T]");
  HEDGEROW_OP_CHECK(op, lse.scalar_type() == at::kFloat, "lse must be float32; got ",
                    dtype_text(lse.scalar_type()));
  HEDGEROW_OP_CHECK(op, !mask_grad || (attn_mask && attn_mask->is_floating_point()),
                    "mask_grad needs a floating attn_mask; got ",
                    attn_mask ? dtype_text(attn_mask->scalar_type()) : std::string("none"));
}

at::Tensor softmax_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const OptTensor& attn_mask, bool is_causal,
                             std::optional<double> scale, double dropout_p,
                             std::optional<int64_t> dropout_seed) {
  static const auto op = find_op<decltype(softmax_attention)>("hedgerow::softmax_attention");
  return op.call(q, k, v, attn_mask, is_causal, scale, dropout_p, dropout_seed);
}

std::tuple<at::Tensor, at::Tensor> softmax_attention_forward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const OptTensor& attn_mask,
    bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<int64_t> dropout_seed) {
  static const auto op =
      find_op<decltype(softmax_attention_forward)>("hedgerow::softmax_attention_forward");
  return op.call(q, k, v, attn_mask, is_causal, scale, dropout_p, dropout_seed);
}

SoftmaxGrads softmax_attention_backward(const at::Tensor& grad, const at::Tensor& q,
                                        const at::Tensor& k, const at::Tensor& v,
                                        const at::Tensor& out, const at::Tensor& lse,
                                        const OptTensor& attn_mask, bool is_causal,
                                        std::optional<double> scale, double dropout_p,
                                        std::optional<int64_t> dropout_seed, bool mask_grad) {
  static const auto op =
      find_op<decltype(softmax_attention_backward)>("hedgerow::softmax_attention_backward");
  return op.call(grad, q, k, v, out, lse, attn_mask, is_causal, scale, dropout_p, dropout_seed,
                 mask_grad);
}

}  // namespace hedgerow::ops

TORCH_LIBRARY_FRAGMENT(hedgerow, m) {
  m.def(
      "softmax_attention(Tensor q, Tensor k, Tensor v, Tensor? attn_mask=None, bool "
      "is_causal=False, "
      "float? scale=None, float dropout_p=0.0, int? dropout_seed=None) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "softmax_attention_forward(Tensor q, Tensor k, Tensor v, Tensor? attn_mask, bool is_causal, "
      "float? scale, "
      "float dropout_p, int? dropout_seed) -> (Tensor out, Tensor lse)",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "softmax_attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor "
      "lse, "
      "Tensor? attn_mask, bool is_causal, float? scale, float dropout_p, int? dropout_seed, bool "
      "mask_grad) -> "
      "(Tensor grad_q, Tensor grad_k, Tensor grad_v, Tensor grad_mask)",
      {at::Tag::pt2_compliant_tag});
}
