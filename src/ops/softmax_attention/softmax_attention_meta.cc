// Shapes and dtypes only; sizes may be symbolic.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/common/dispatch.h"
#include "ops/softmax_attention/softmax_attention.h"

namespace hedgerow::ops {
namespace {

at::Tensor softmax_attention_meta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const OptTensor& attn_mask, bool is_causal,
                                  std::optional<double> scale, double dropout_p,
                                  std::optional<int64_t> dropout_seed) {
  check_softmax_attention("softmax_attention", q, k, v, attn_mask, scale, dropout_p, dropout_seed);
  return at::empty_symint({q.sym_size(0), q.sym_size(1), q.sym_size(2), v.sym_size(3)},
                          q.options());
}

std::tuple<at::Tensor, at::Tensor> softmax_attention_forward_meta(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const OptTensor& attn_mask,
    bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<int64_t> dropout_seed) {
  const at::Tensor out =
      softmax_attention_meta(q, k, v, attn_mask, is_causal, scale, dropout_p, dropout_seed);
  return {out, at::empty_symint({q.sym_size(0), q.sym_size(1), q.sym_size(2)},
                                q.options().dtype(at::kFloat))};
}

SoftmaxGrads softmax_attention_backward_meta(const at::Tensor& grad, const at::Tensor& q,
                                             const at::Tensor& k, const at::Tensor& v,
                                             const at::Tensor& out, const at::Tensor& lse,
                                             const OptTensor& attn_mask, bool is_causal,
                                             std::optional<double> scale, double dropout_p,
                                             std::optional<int64_t> dropout_seed, bool mask_grad) {
  check_softmax_attention("softmax_attention_backward", q, k, v, attn_mask, scale, dropout_p,
                          dropout_seed);
  check_softmax_backward(grad, q, v, out, lse, attn_mask, mask_grad);
  const auto like = [](const at::Tensor& t) {
    return at::empty_symint(t.sym_sizes(), t.options());
  };
  return {like(q), like(k), like(v), mask_grad ? like(*attn_mask) : at::empty({0}, q.options())};
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Meta, m) {
  m.impl("softmax_attention", hedgerow::ops::softmax_attention_meta);
  m.impl("softmax_attention_forward", hedgerow::ops::softmax_attention_forward_meta);
  m.impl("softmax_attention_backward", hedgerow::ops::softmax_attention_backward_meta);
}
