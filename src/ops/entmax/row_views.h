// Tensors as the row kernels see them (hedgerow/kernels/entmax.h): rows along any dimension, no
// copies. Views must not outlive their tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "hedgerow/kernels/entmax.h"
#include "ops/common/dispatch.h"

namespace hedgerow::ops {

// `values` without the entry of `dim`.
inline std::vector<int64_t> without(at::IntArrayRef values, int64_t dim) {
  std::vector<int64_t> out = values.vec();
  out.erase(out.begin() + dim);
  return out;
}

// The rows of x along dim, and alpha in float64.
struct AlphaRows {
  AlphaRows(const at::Tensor& x, const at::Tensor& alpha_in, int64_t dim)
      : alpha(alpha_in.detach().to(at::kDouble).contiguous()) {
    rows.dtype = kernel_dtype(x.scalar_type());
    rows.sizes = without(x.sizes(), dim);
    rows.length = x.size(dim);
    rows.alpha = alpha.const_data_ptr<double>();
    rows.num_alphas = alpha.numel();
    if (alpha.dim() == 0) return;
    for (int64_t i = 0; i < alpha.dim(); i++)
      if (i != dim) rows.alpha_strides.push_back(alpha.size(i) == 1 ? 0 : alpha.stride(i));
  }
  at::Tensor alpha;
  kernels::EntmaxRows rows;
};

inline kernels::ConstRows const_rows(const at::Tensor& t, int64_t dim) {
  return {t.const_data_ptr(), without(t.strides(), dim), t.stride(dim)};
}
inline kernels::MutRows mut_rows(const at::Tensor& t, int64_t dim) {
  return {t.mutable_data_ptr(), without(t.strides(), dim), t.stride(dim)};
}
inline kernels::RowMask row_mask(const std::optional<at::Tensor>& mask, const at::Tensor& x,
                                 int64_t dim) {
  if (!mask) return {};
  const at::Tensor full = mask->expand(x.sizes());
  return {static_cast<const uint8_t*>(full.const_data_ptr()), without(full.strides(), dim),
          full.stride(dim)};
}

}  // namespace hedgerow::ops
