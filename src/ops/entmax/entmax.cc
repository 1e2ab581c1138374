#include "ops/entmax/entmax.h"

#include <ATen/ATen.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <torch/library.h>

#include <cmath>

#include "hedgerow/ops.h"
#include "ops/common/dispatch.h"

namespace hedgerow::ops {
namespace {

int64_t check_rows(const char* op, Named x, int64_t dim) {
  check_inputs(op, {x});
  const int64_t rank = x.tensor.dim();
  HEDGEROW_OP_CHECK(op, rank >= 1, x.name, " must have at least 1 dimension; got a scalar");
  HEDGEROW_OP_CHECK(op, dim >= -rank && dim < rank, "dim must be in [", -rank, ", ", rank, ") for ",
                    x.name, " of shape ", shape_text(x.tensor), "; got ", dim);
  return dim < 0 ? dim + rank : dim;
}

void check_row_mask(const char* op, const OptTensor& mask, const at::Tensor& x) {
  if (!mask) return;
  HEDGEROW_OP_CHECK(op, mask->scalar_type() == at::kBool, "mask must be boolean, true = keep; got ",
                    dtype_text(mask->scalar_type()));
  const int64_t lead = x.dim() - mask->dim();
  bool fits = lead >= 0;
  for (int64_t i = 0; fits && i < mask->dim(); i++)
    fits = mask->sym_size(i) == 1 || mask->sym_size(i) == x.sym_size(lead + i);
  HEDGEROW_OP_CHECK(op, fits, "mask must broadcast to x; got mask shape ", shape_text(*mask),
                    " and x shape ", shape_text(x));
  HEDGEROW_OP_CHECK(op, mask->device() == x.device(), "mask must be on x's device ",
                    x.device().str(), "; got ", mask->device().str());
}

}  // namespace

void check_alpha_tensor(const char* op, const at::Tensor& alpha, const at::Tensor& like) {
  HEDGEROW_OP_CHECK(op, alpha.defined() && alpha.is_floating_point(),
                    "alpha must be a floating tensor; got ",
                    alpha.defined() ? dtype_text(alpha.scalar_type()) : std::string("none"));
  HEDGEROW_OP_CHECK(op, alpha.device() == like.device(), "alpha must be on the inputs' device ",
                    like.device().str(), "; got ", alpha.device().str());
}

void check_alpha_values(const char* op, const at::Tensor& alpha) {
  if (at::isTensorSubclassLike(alpha)) return;
  const at::Tensor values = alpha.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* data = values.const_data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); i++)
    HEDGEROW_OP_CHECK(op, std::isfinite(data[i]) && data[i] >= 1,
                      "alpha must be finite and at least 1; got ", data[i]);
}

void check_alpha_of_rows(const char* op, const at::Tensor& alpha, const at::Tensor& x,
                         int64_t dim) {
  check_alpha_tensor(op, alpha, x);
  bool fits = alpha.dim() == 0 || alpha.dim() == x.dim();
  for (int64_t i = 0; fits && i < alpha.dim(); i++)
    fits = alpha.sym_size(i) == 1 || (i != dim && alpha.sym_size(i) == x.sym_size(i));
  HEDGEROW_OP_CHECK(op, fits, "alpha must be a scalar, or have x's rank, size 1 on dim ", dim,
                    " and sizes of 1 or x's elsewhere; got alpha shape ", shape_text(alpha),
                    " and x shape ", shape_text(x));
}

int64_t check_entmax(const char* op, const at::Tensor& x, const at::Tensor& alpha, int64_t dim,
                     const OptTensor& mask) {
  const int64_t d = check_rows(op, {"x", x}, dim);
  check_alpha_of_rows(op, alpha, x, d);
  check_row_mask(op, mask, x);
  return d;
}

int64_t check_entmax_backward(const at::Tensor& grad, const at::Tensor& p, const at::Tensor& alpha,
                              int64_t dim) {
  const char* op = "entmax_backward";
  check_inputs(op, {{"grad", grad}, {"p", p}});
  const int64_t d = check_rows(op, {"p", p}, dim);
  check_shape(op, {"grad", grad}, p.sym_sizes(), "that of p");
  check_alpha_of_rows(op, alpha, p, d);
  return d;
}

int64_t check_entmax_topk(const at::Tensor& x, const at::Tensor& alpha, int64_t k, int64_t dim,
                          const OptTensor& mask) {
  const int64_t d = check_entmax("entmax_topk", x, alpha, dim, mask);
  HEDGEROW_OP_CHECK("entmax_topk", k >= 1, "k must be at least 1; got ", k);
  return d;
}

at::Tensor entmax(const at::Tensor& x, const at::Tensor& alpha, int64_t dim,
                  const OptTensor& mask) {
  static const auto op = find_op<decltype(entmax)>("hedgerow::entmax");
  return op.call(x, alpha, dim, mask);
}

EntmaxGrads entmax_backward(const at::Tensor& grad, const at::Tensor& p, const at::Tensor& alpha,
                            int64_t dim, bool alpha_grad) {
  static const auto op = find_op<decltype(entmax_backward)>("hedgerow::entmax_backward");
  return op.call(grad, p, alpha, dim, alpha_grad);
}

TopK entmax_topk(const at::Tensor& x, const at::Tensor& alpha, int64_t k, int64_t dim,
                 const OptTensor& mask) {
  static const auto op = find_op<decltype(entmax_topk)>("hedgerow::entmax_topk");
  return op.call(x, alpha, k, dim, mask);
}

at::Tensor sparsemax(const at::Tensor& x, int64_t dim, const OptTensor& mask) {
  static const auto op = find_op<decltype(sparsemax)>("hedgerow::sparsemax");
  return op.call(x, dim, mask);
}

at::Tensor entmax15(const at::Tensor& x, int64_t dim, const OptTensor& mask) {
  static const auto op = find_op<decltype(entmax15)>("hedgerow::entmax15");
  return op.call(x, dim, mask);
}

namespace {

// entmax of one fixed alpha; checks under its own name.
at::Tensor fixed(const char* op, double alpha, const at::Tensor& x, int64_t dim,
                 const OptTensor& mask) {
  const int64_t d = check_rows(op, {"x", x}, dim);
  check_row_mask(op, mask, x);
  return entmax(x, at::full({}, alpha, x.options().dtype(at::kDouble).requires_grad(false)), d,
                mask);
}

at::Tensor sparsemax_of_atens(const at::Tensor& x, int64_t dim, const OptTensor& mask) {
  return fixed("sparsemax", 2.0, x, dim, mask);
}
at::Tensor entmax15_of_atens(const at::Tensor& x, int64_t dim, const OptTensor& mask) {
  return fixed("entmax15", 1.5, x, dim, mask);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_FRAGMENT(hedgerow, m) {
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  m.def("entmax(Tensor x, Tensor alpha, int dim=-1, Tensor? mask=None) -> Tensor", tags);
  m.def(
      "entmax_backward(Tensor grad, Tensor p, Tensor alpha, int dim, bool alpha_grad) -> "
      "(Tensor grad_x, Tensor grad_alpha)",
      tags);
  m.def(
      "entmax_topk(Tensor x, Tensor alpha, int k, int dim=-1, Tensor? mask=None) -> "
      "(Tensor values, Tensor indices, Tensor complete)",
      tags);
  m.def("sparsemax(Tensor x, int dim=-1, Tensor? mask=None) -> Tensor", tags);
  m.def("entmax15(Tensor x, int dim=-1, Tensor? mask=None) -> Tensor", tags);
}
TORCH_LIBRARY_IMPL(hedgerow, CompositeImplicitAutograd, m) {
  m.impl("sparsemax", hedgerow::ops::sparsemax_of_atens);
  m.impl("entmax15", hedgerow::ops::entmax15_of_atens);
}
