// Shapes and dtypes only; sizes may be symbolic.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "hedgerow/kernels/entmax_attention.h"
#include "ops/entmax_attention/entmax_attention.h"

namespace hedgerow::ops {
namespace {

at::Tensor empty_out(const EntmaxInputs& in) {
  return at::empty_symint(saved_sizes(in.q, in.v.sym_size(3)), in.q.options());
}

at::Tensor entmax_attention_meta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const at::Tensor& alpha, const OptTensor& attn_mask,
                                 bool is_causal, std::optional<double> scale, double dropout_p,
                                 std::optional<int64_t> dropout_seed) {
  const EntmaxInputs in{q, k, v, alpha, attn_mask, is_causal, scale, dropout_p, dropout_seed};
  check_entmax_attention("entmax_attention", in);
  return empty_out(in);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> entmax_attention_forward_meta(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& alpha,
    const OptTensor& attn_mask, bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<int64_t> dropout_seed) {
  const EntmaxInputs in{q, k, v, alpha, attn_mask, is_causal, scale, dropout_p, dropout_seed};
  check_entmax_attention("entmax_attention", in);
  const c10::SymInt keys = k.sym_size(2), capacity = support_capacity(keys);
  const auto make = [&](const c10::SymInt& last, at::ScalarType dtype) {
    return at::empty_symint(saved_sizes(q, last), q.options().dtype(dtype));
  };
  return {empty_out(in), make(kernels::kEntmaxRowStats, at::kFloat),
          make(capacity, support_index_dtype(keys)), make(capacity, at::kFloat)};
}

EntmaxAttentionGrads entmax_attention_backward_meta(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& alpha, const at::Tensor& stats, const at::Tensor& index,
    const at::Tensor& weight, const OptTensor& attn_mask, bool is_causal,
    std::optional<double> scale, double dropout_p, std::optional<int64_t> dropout_seed,
    bool alpha_grad, bool mask_grad) {
  const EntmaxInputs in{q, k, v, alpha, attn_mask, is_causal, scale, dropout_p, dropout_seed};
  check_entmax_attention_backward(grad, in, {stats, index, weight}, mask_grad);
  const auto like = [](const at::Tensor& t) {
    return at::empty_symint(t.sym_sizes(), t.options());
  };
  return {like(q), like(k), like(v), alpha_grad ? like(alpha) : at::empty({0}, alpha.options()),
          mask_grad ? like(*attn_mask) : at::empty({0}, q.options())};
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Meta, m) {
  m.impl("entmax_attention", hedgerow::ops::entmax_attention_meta);
  m.impl("entmax_attention_forward", hedgerow::ops::entmax_attention_forward_meta);
  m.impl("entmax_attention_backward", hedgerow::ops::entmax_attention_backward_meta);
}
