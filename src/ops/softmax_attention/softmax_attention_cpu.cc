#include <ATen/ATen.h>
#include <torch/library.h>

#include "hedgerow/kernels/softmax.h"
#include "ops/common/dispatch.h"
#include "ops/common/path.h"
#include "ops/softmax_attention/attention_call.h"
#include "ops/softmax_attention/softmax_attention.h"

namespace hedgerow::ops {
namespace {

using Call = AttentionCall<kernels::SoftmaxParams>;

std::tuple<at::Tensor, at::Tensor> run_forward(const at::Tensor& q, const at::Tensor& k,
                                               const at::Tensor& v, const OptTensor& attn_mask,
                                               bool is_causal, std::optional<double> scale,
                                               double dropout_p,
                                               std::optional<int64_t> dropout_seed, bool want_lse) {
  check_softmax_attention("softmax_attention", q, k, v, attn_mask, scale, dropout_p, dropout_seed);
  if (!use_fast("softmax_attention", on_kernel_device(q), "a device without a kernel"))
    return softmax_attention_composite(q, k, v, attn_mask, is_causal, scale, dropout_p,
                                       dropout_seed);
  const Call call(q, k, v, attn_mask, is_causal, scale, dropout_p, dropout_seed);
  const at::Tensor out = fresh({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
  at::Tensor lse;
  if (want_lse) lse = fresh({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
  kernels::softmax_attention_forward(call.params, mut_view(out),
                                     want_lse ? lse.mutable_data_ptr<float>() : nullptr);
  return {out, lse};
}

at::Tensor softmax_attention_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const OptTensor& attn_mask, bool is_causal,
                                 std::optional<double> scale, double dropout_p,
                                 std::optional<int64_t> dropout_seed) {
  return std::get<0>(
      run_forward(q, k, v, attn_mask, is_causal, scale, dropout_p, dropout_seed, false));
}

std::tuple<at::Tensor, at::Tensor> softmax_attention_forward_cpu(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const OptTensor& attn_mask,
    bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<int64_t> dropout_seed) {
  return run_forward(q, k, v, attn_mask, is_causal, scale, dropout_p, dropout_seed, true);
}

SoftmaxGrads softmax_attention_backward_cpu(const at::Tensor& grad, const at::Tensor& q,
                                            const at::Tensor& k, const at::Tensor& v,
                                            const at::Tensor& out, const at::Tensor& lse,
                                            const OptTensor& attn_mask, bool is_causal,
                                            std::optional<double> scale, double dropout_p,
                                            std::optional<int64_t> dropout_seed, bool mask_grad) {
  check_softmax_attention("softmax_attention_backward", q, k, v, attn_mask, scale, dropout_p,
                          dropout_seed);
  check_softmax_backward(grad, q, v, out, lse, attn_mask, mask_grad);
  if (!use_fast("softmax_attention_backward", on_kernel_device(q), "a device without a kernel"))
    return softmax_attention_backward_composite(grad, q, k, v, attn_mask, is_causal, scale,
                                                dropout_p, dropout_seed, mask_grad);
  const Call call(q, k, v, attn_mask, is_causal, scale, dropout_p, dropout_seed);
  const at::Tensor grad_rows = rows_contiguous(grad), out_rows = rows_contiguous(out),
                   sums = lse.contiguous();
  const at::Tensor dq = fresh(q.sizes(), q.options()), dk = fresh(k.sizes(), k.options()),
                   dv = fresh(v.sizes(), v.options());
  at::Tensor dmask;
  kernels::SoftmaxGradients g;
  g.out = const_view(out_rows);
  g.lse = sums.const_data_ptr<float>();
  g.grad_out = const_view(grad_rows);
  g.dq = mut_view(dq);
  g.dk = mut_view(dk);
  g.dv = mut_view(dv);
  if (mask_grad) dmask = mask_gradient(call.mask, *attn_mask, g.dmask);
  kernels::softmax_attention_backward(call.params, g);
  return {dq, dk, dv, mask_grad ? dmask.to(attn_mask->scalar_type()) : at::empty({0}, q.options())};
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CPU, m) {
  m.impl("softmax_attention", hedgerow::ops::softmax_attention_cpu);
  m.impl("softmax_attention_forward", hedgerow::ops::softmax_attention_forward_cpu);
  m.impl("softmax_attention_backward", hedgerow::ops::softmax_attention_backward_cpu);
}
