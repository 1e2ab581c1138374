#include <ATen/ATen.h>
#include <torch/library.h>

#include "hedgerow/kernels/entmax_attention.h"
#include "ops/common/dispatch.h"
#include "ops/common/path.h"
#include "ops/entmax/entmax.h"
#include "ops/entmax_attention/entmax_attention.h"
#include "ops/softmax_attention/attention_call.h"

namespace hedgerow::ops {
namespace {

constexpr const char* kNoKernel = "a device without a kernel";

struct Call : AttentionCall<kernels::EntmaxAttentionParams> {
  at::Tensor alpha;

  explicit Call(const EntmaxInputs& in)
      : AttentionCall(in.q, in.k, in.v, in.attn_mask, in.is_causal, in.scale, in.dropout_p,
                      in.dropout_seed),
        alpha(in.alpha.detach().to(at::kDouble).contiguous()) {
    params.alpha = alpha.const_data_ptr<double>();
    params.alpha_stride = alpha.dim();  // 1: [H]; 0: one for all
  }
};

kernels::EntmaxSupport support_view(const EntmaxSaved& saved) {
  return {saved.stats.mutable_data_ptr<float>(), saved.index.mutable_data_ptr(),
          saved.weight.mutable_data_ptr<float>()};
}

EntmaxSaved fresh_support(const EntmaxInputs& in) {
  const int64_t keys = in.k.size(2), capacity = kernels::entmax_support_capacity(keys);
  const std::vector<int64_t> rows = {in.q.size(0), in.q.size(1), in.q.size(2)};
  const auto make = [&](int64_t last, at::ScalarType dtype) {
    return fresh({rows[0], rows[1], rows[2], last}, in.q.options().dtype(dtype));
  };
  return {make(kernels::kEntmaxRowStats, at::kFloat), make(capacity, support_index_dtype(keys)),
          make(capacity, at::kFloat)};
}

at::Tensor entmax_attention_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const at::Tensor& alpha, const OptTensor& attn_mask, bool is_causal,
                                std::optional<double> scale, double dropout_p,
                                std::optional<int64_t> dropout_seed) {
  const EntmaxInputs in{q, k, v, alpha, attn_mask, is_causal, scale, dropout_p, dropout_seed};
  check_entmax_attention("entmax_attention", in);
  check_alpha_values("entmax_attention", alpha);
  if (!use_fast("entmax_attention", on_kernel_device(q), kNoKernel))
    return entmax_attention_composite(in);
  const Call call(in);
  const at::Tensor out = fresh({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
  kernels::entmax_attention_forward(call.params, mut_view(out), nullptr);
  return out;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> entmax_attention_forward_cpu(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& alpha,
    const OptTensor& attn_mask, bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<int64_t> dropout_seed) {
  const EntmaxInputs in{q, k, v, alpha, attn_mask, is_causal, scale, dropout_p, dropout_seed};
  check_entmax_attention("entmax_attention", in);
  check_alpha_values("entmax_attention", alpha);
  if (!use_fast("entmax_attention", on_kernel_device(q), kNoKernel)) {
    const auto [out, saved] = entmax_attention_composite_saving(in);
    return {out, saved.stats, saved.index, saved.weight};
  }
  const Call call(in);
  const at::Tensor out = fresh({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
  const EntmaxSaved saved = fresh_support(in);
  const kernels::EntmaxSupport support = support_view(saved);
  kernels::entmax_attention_forward(call.params, mut_view(out), &support);
  return {out, saved.stats, saved.index, saved.weight};
}

EntmaxAttentionGrads entmax_attention_backward_cpu(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& alpha, const at::Tensor& stats, const at::Tensor& index,
    const at::Tensor& weight, const OptTensor& attn_mask, bool is_causal,
    std::optional<double> scale, double dropout_p, std::optional<int64_t> dropout_seed,
    bool alpha_grad, bool mask_grad) {
  const EntmaxInputs in{q, k, v, alpha, attn_mask, is_causal, scale, dropout_p, dropout_seed};
  check_entmax_attention_backward(grad, in, {stats, index, weight}, mask_grad);
  check_alpha_values("entmax_attention_backward", alpha);
  if (!use_fast("entmax_attention_backward", on_kernel_device(q), kNoKernel))
    return entmax_attention_backward_composite(grad, in, alpha_grad, mask_grad);
  const Call call(in);
  const at::Tensor grad_rows = rows_contiguous(grad);
  const EntmaxSaved saved = {stats.contiguous(), index.contiguous(), weight.contiguous()};
  const at::Tensor dq = fresh(q.sizes(), q.options()), dk = fresh(k.sizes(), k.options()),
                   dv = fresh(v.sizes(), v.options());
  at::Tensor dmask, dalpha;
  kernels::EntmaxGradients g;
  g.support = support_view(saved);
  g.grad_out = const_view(grad_rows);
  g.dq = mut_view(dq);
  g.dk = mut_view(dk);
  g.dv = mut_view(dv);
  if (mask_grad) dmask = mask_gradient(call.mask, *attn_mask, g.dmask);
  if (alpha_grad) {
    dalpha = fresh({q.size(1)}, alpha.options().dtype(at::kDouble));
    g.dalpha = dalpha.mutable_data_ptr<double>();
  }
  kernels::entmax_attention_backward(call.params, g);
  if (alpha_grad && alpha.dim() == 0) dalpha = dalpha.sum();
  return {dq, dk, dv, alpha_grad ? dalpha.to(alpha.scalar_type()) : at::empty({0}, alpha.options()),
          mask_grad ? dmask.to(attn_mask->scalar_type()) : at::empty({0}, q.options())};
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CPU, m) {
  m.impl("entmax_attention", hedgerow::ops::entmax_attention_cpu);
  m.impl("entmax_attention_forward", hedgerow::ops::entmax_attention_forward_cpu);
  m.impl("entmax_attention_backward", hedgerow::ops::entmax_attention_backward_cpu);
}
