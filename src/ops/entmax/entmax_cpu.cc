#include <ATen/ATen.h>
#include <torch/library.h>

#include "hedgerow/kernels/entmax.h"
#include "hedgerow/ops.h"
#include "ops/common/dispatch.h"
#include "ops/common/path.h"
#include "ops/entmax/entmax.h"
#include "ops/entmax/row_views.h"

namespace hedgerow::ops {
namespace {

constexpr const char* kNoKernel = "a device without a kernel";

at::Tensor entmax_cpu(const at::Tensor& x, const at::Tensor& alpha, int64_t dim,
                      const OptTensor& mask) {
  const int64_t d = check_entmax("entmax", x, alpha, dim, mask);
  check_alpha_values("entmax", alpha);
  if (!use_fast("entmax", on_kernel_device(x), kNoKernel))
    return entmax_composite(x, alpha, d, mask);
  const AlphaRows rows(x, alpha, d);
  const at::Tensor p = fresh(x.sizes(), x.options());
  kernels::entmax_forward(rows.rows, const_rows(x, d), row_mask(mask, x, d), mut_rows(p, d));
  return p;
}

EntmaxGrads entmax_backward_cpu(const at::Tensor& grad, const at::Tensor& p,
                                const at::Tensor& alpha, int64_t dim, bool alpha_grad) {
  const int64_t d = check_entmax_backward(grad, p, alpha, dim);
  check_alpha_values("entmax_backward", alpha);
  if (!use_fast("entmax_backward", on_kernel_device(p), kNoKernel))
    return entmax_backward_composite(grad, p, alpha, d, alpha_grad);
  const AlphaRows rows(p, alpha, d);
  const at::Tensor dx = fresh(p.sizes(), p.options());
  at::Tensor dalpha;
  if (alpha_grad) dalpha = fresh(alpha.sizes(), alpha.options().dtype(at::kDouble));
  kernels::entmax_backward(rows.rows, const_rows(p, d), const_rows(grad, d), mut_rows(dx, d),
                           alpha_grad ? dalpha.mutable_data_ptr<double>() : nullptr);
  return {dx, alpha_grad ? dalpha.to(alpha.scalar_type()) : at::empty({0}, alpha.options())};
}

TopK entmax_topk_cpu(const at::Tensor& x, const at::Tensor& alpha, int64_t k, int64_t dim,
                     const OptTensor& mask) {
  const int64_t d = check_entmax_topk(x, alpha, k, dim, mask);
  check_alpha_values("entmax_topk", alpha);
  if (!use_fast("entmax_topk", on_kernel_device(x), kNoKernel))
    return entmax_topk_composite(x, alpha, k, d, mask);
  const AlphaRows rows(x, alpha, d);
  std::vector<int64_t> sizes = rows.rows.sizes;  // of complete
  const at::Tensor complete = fresh(sizes, x.options().dtype(at::kBool));
  sizes.push_back(k);
  const at::Tensor values = fresh(sizes, x.options()),
                   indices = fresh(sizes, x.options().dtype(at::kLong));
  kernels::entmax_topk_forward(rows.rows, const_rows(x, d), row_mask(mask, x, d),
                               {k, values.mutable_data_ptr(), indices.mutable_data_ptr<int64_t>(),
                                static_cast<uint8_t*>(complete.mutable_data_ptr())});
  return {values.movedim(-1, d).contiguous(), indices.movedim(-1, d).contiguous(), complete};
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CPU, m) {
  m.impl("entmax", hedgerow::ops::entmax_cpu);
  m.impl("entmax_backward", hedgerow::ops::entmax_backward_cpu);
  m.impl("entmax_topk", hedgerow::ops::entmax_topk_cpu);
}
