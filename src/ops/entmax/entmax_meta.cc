// Shapes and dtypes only; sizes may be symbolic.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/entmax/entmax.h"

namespace hedgerow::ops {
namespace {

at::Tensor like(const at::Tensor& t) { return at::empty_symint(t.sym_sizes(), t.options()); }

at::Tensor entmax_meta(const at::Tensor& x, const at::Tensor& alpha, int64_t dim,
                       const OptTensor& mask) {
  check_entmax("entmax", x, alpha, dim, mask);
  return like(x);
}

EntmaxGrads entmax_backward_meta(const at::Tensor& grad, const at::Tensor& p,
                                 const at::Tensor& alpha, int64_t dim, bool alpha_grad) {
  check_entmax_backward(grad, p, alpha, dim);
  return {like(p), alpha_grad ? like(alpha) : at::empty({0}, alpha.options())};
}

TopK entmax_topk_meta(const at::Tensor& x, const at::Tensor& alpha, int64_t k, int64_t dim,
                      const OptTensor& mask) {
  const int64_t d = check_entmax_topk(x, alpha, k, dim, mask);
  std::vector<c10::SymInt> sizes = x.sym_sizes().vec();
  sizes[d] = k;
  const at::Tensor values = at::empty_symint(sizes, x.options()),
                   indices = at::empty_symint(sizes, x.options().dtype(at::kLong));
  sizes.erase(sizes.begin() + d);
  return {values, indices, at::empty_symint(sizes, x.options().dtype(at::kBool))};
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Meta, m) {
  m.impl("entmax", hedgerow::ops::entmax_meta);
  m.impl("entmax_backward", hedgerow::ops::entmax_backward_meta);
  m.impl("entmax_topk", hedgerow::ops::entmax_topk_meta);
}
