#include <ATen/ATen.h>
#include <torch/library.h>

#include "hedgerow/kernels/talking_heads.h"
#include "ops/common/dispatch.h"
#include "ops/common/path.h"
#include "ops/common/scores.h"
#include "ops/common/struct_operator.h"
#include "ops/softmax_attention/attention_call.h"
#include "ops/talking_heads_attention/talking_heads_attention.h"

namespace hedgerow::ops {
namespace {

using kernels::TalkingHeadsGradients;
using kernels::TalkingHeadsParams;

constexpr const char* kNoKernel = "a device without a kernel";

// Projections and dynamic terms, and where kernels have them and their gradients.
struct MixingField {
  OptionalTensor tensor;
  const void* TalkingHeadsParams::*data;
  void* TalkingHeadsGradients::*grad;
};
constexpr MixingField kMixing[] = {
    {kLogitsProj, &TalkingHeadsParams::logits_proj, &TalkingHeadsGradients::dlogits_proj},
    {kWeightsProj, &TalkingHeadsParams::weights_proj, &TalkingHeadsGradients::dweights_proj},
    {kXLogits, &TalkingHeadsParams::x_logits, &TalkingHeadsGradients::dx_logits},
    {kMLogits, &TalkingHeadsParams::m_logits, &TalkingHeadsGradients::dm_logits},
    {kXWeights, &TalkingHeadsParams::x_weights, &TalkingHeadsGradients::dx_weights},
    {kMWeights, &TalkingHeadsParams::m_weights, &TalkingHeadsGradients::dm_weights}};

// The inputs as the kernel takes them, and its view of them.
struct Call {
  TalkingHeadsInputs in;
  at::Tensor mask;
  TalkingHeadsParams params;
  at::ScalarType mixing_dtype;

  explicit Call(const TalkingHeadsInputs& given)
      : in(given), mixing_dtype(accumulate_dtype(given.q.scalar_type())) {
    in.q = rows_contiguous(in.q);
    in.k = rows_contiguous(in.k);
    in.v = rows_contiguous(in.v);
    const HeadCounts heads = head_counts(in);
    params.dtype = kernel_dtype(in.q.scalar_type());
    params.batch = in.q.size(0);
    params.key_heads = in.q.size(1);
    params.key_kv_heads = in.k.size(1);
    params.heads = heads.softmax.expect_int();
    params.value_heads = heads.value.expect_int();
    params.value_kv_heads = in.v.size(1);
    params.queries = in.q.size(2);
    params.keys = in.k.size(2);
    params.width = in.q.size(3);
    params.value_width = in.v.size(3);
    params.q = const_view(in.q);
    params.k = const_view(in.k);
    params.v = const_view(in.v);
    const auto tensors = optional_tensors(in);
    for (const MixingField& field : kMixing) {
      OptTensor& t = *tensors[field.tensor];
      if (t) t = t->to(mixing_dtype).contiguous();
      params.*field.data = const_data(t);
    }
    if (in.attn_mask)
      mask = kernel_mask(*in.attn_mask, {params.batch, params.heads, params.queries, params.keys});
    params.mask = mask_view(mask);
    if (in.alpha) {
      in.alpha = in.alpha->to(at::kDouble).contiguous();
      params.alpha = in.alpha->const_data_ptr<double>();
      params.alpha_stride = in.alpha->dim();  // 1: [H]; 0: one for all
    }
    params.is_causal = in.is_causal;
    params.scale = scale_or_default(in.scale, in.q);
    params.dropout_p = in.dropout_p;
    params.dropout_seed = static_cast<uint64_t>(in.dropout_seed.value_or(0));
  }
};

at::Tensor attention_cpu(const TalkingHeadsInputs& in) {
  const char* op = "talking_heads_attention";
  check_talking_heads_attention(op, in);
  if (!use_fast(op, on_kernel_device(in.q), kNoKernel))
    return talking_heads_attention_composite(in);
  const Call call(in);
  const TalkingHeadsParams& p = call.params;
  const at::Tensor out = fresh({p.batch, p.value_heads, p.queries, p.value_width}, in.q.options());
  kernels::talking_heads_forward(p, mut_view(out));
  return out;
}

TalkingHeadsGrads backward_cpu(const TalkingHeadsInputs& in, const at::Tensor& grad,
                               WantedGrads wanted) {
  check_talking_heads_backward(in, grad, wanted);
  if (!use_fast("talking_heads_attention_backward", on_kernel_device(in.q), kNoKernel))
    return talking_heads_attention_backward_composite(in, grad, wanted);
  const Call call(in);
  const at::Tensor grad_rows = rows_contiguous(grad);
  TalkingHeadsGradients g;
  g.grad_out = const_view(grad_rows);
  GradArray grads;
  for (at::Tensor& t : grads) t = at::empty({0}, in.q.options());
  const auto rows_like = [](const at::Tensor& t) { return fresh(t.sizes(), t.options()); };
  g.dq = mut_view(grads[0] = rows_like(in.q));
  g.dk = mut_view(grads[1] = rows_like(in.k));
  g.dv = mut_view(grads[2] = rows_like(in.v));
  const auto tensors = optional_tensors(in);
  const auto gradient = [&](OptionalTensor i) -> at::Tensor& { return grads[3 + i]; };
  for (const MixingField& field : kMixing) {
    if (!wanted[field.tensor]) continue;
    const at::Tensor& t = **tensors[field.tensor];
    gradient(field.tensor) = fresh(t.sizes(), t.options().dtype(call.mixing_dtype));
    g.*field.grad = gradient(field.tensor).mutable_data_ptr();
  }
  if (wanted[kAttnMask]) gradient(kAttnMask) = mask_gradient(call.mask, *in.attn_mask, g.dmask);
  if (wanted[kAlpha]) {
    gradient(kAlpha) = fresh({call.params.heads}, in.alpha->options().dtype(at::kDouble));
    g.dalpha = gradient(kAlpha).mutable_data_ptr<double>();
  }
  kernels::talking_heads_backward(call.params, g);
  if (wanted[kAlpha] && in.alpha->dim() == 0) gradient(kAlpha) = gradient(kAlpha).sum();
  for (size_t i = 0; i < kNumOptional; i++)
    if (wanted[i]) grads[3 + i] = grads[3 + i].to((*tensors[i])->scalar_type());
  return std::tuple_cat(grads);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CPU, m) {
  using namespace hedgerow::ops;
  m.impl("talking_heads_attention", kStructKernel<&attention_cpu>);
  m.impl("talking_heads_attention_backward", kStructKernel<&backward_cpu>);
}
