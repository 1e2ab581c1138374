// Tensors of softmax-like attention as its kernels see them, in parameters that start as
// kernels::SoftmaxParams do.
#pragma once

#include <ATen/ATen.h>

#include "hedgerow/kernels/softmax.h"
#include "ops/common/dispatch.h"
#include "ops/common/scores.h"

namespace hedgerow::ops {

// The mask as four-dimensional memory: expanded to [B,H,T,S], of a type that kernels read.
inline at::Tensor kernel_mask(const at::Tensor& mask, at::IntArrayRef full) {
  at::Tensor t = mask.scalar_type() == at::kBFloat16 ? mask.to(at::kFloat) : mask;
  return t.expand(full);
}

inline kernels::Mask mask_view(const at::Tensor& t) {  // t: kernel_mask's
  if (!t.defined()) return {};
  const kernels::MaskKind kind = t.scalar_type() == at::kBool     ? kernels::MaskKind::kBool
                                 : t.scalar_type() == at::kDouble ? kernels::MaskKind::kFloat64
                                                                  : kernels::MaskKind::kFloat32;
  return {kind, t.const_data_ptr(), t.stride(0), t.stride(1), t.stride(2), t.stride(3)};
}

// Memory for the gradient of attn_mask, of the mask's own sizes; where it broadcasts the stride is
// 0 and the kernel sums. mask: kernel_mask's.
inline at::Tensor mask_gradient(const at::Tensor& mask, const at::Tensor& attn_mask,
                                kernels::MaskGradient& view) {
  // without a score the kernel has nothing to write
  const at::Tensor dmask = mask.numel() == 0 ? at::zeros(attn_mask.sizes(), mask.options())
                                             : fresh(attn_mask.sizes(), mask.options());
  const at::Tensor full = dmask.expand(mask.sizes());
  view = {dmask.mutable_data_ptr(), full.stride(0), full.stride(1), full.stride(2), full.stride(3)};
  return dmask;
}

// Inputs with contiguous rows, and the kernel's view of them.
template <typename Params>
struct AttentionCall {
  at::Tensor q, k, v, mask;
  Params params;

  AttentionCall(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                const std::optional<at::Tensor>& attn_mask, bool is_causal,
                std::optional<double> scale, double dropout_p, std::optional<int64_t> dropout_seed)
      : q(rows_contiguous(q_in)), k(rows_contiguous(k_in)), v(rows_contiguous(v_in)) {
    if (attn_mask) mask = kernel_mask(*attn_mask, {q.size(0), q.size(1), q.size(2), k.size(2)});
    params.dtype = kernel_dtype(q.scalar_type());
    params.batch = q.size(0);
    params.heads = q.size(1);
    params.kv_heads = k.size(1);
    params.queries = q.size(2);
    params.keys = k.size(2);
    params.width = q.size(3);
    params.value_width = v.size(3);
    params.q = const_view(q);
    params.k = const_view(k);
    params.v = const_view(v);
    params.mask = mask_view(mask);
    params.is_causal = is_causal;
    params.scale = scale_or_default(scale, q);
    params.dropout_p = dropout_p;
    params.dropout_seed = static_cast<uint64_t>(dropout_seed.value_or(0));
  }
};

}  // namespace hedgerow::ops
