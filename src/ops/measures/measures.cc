// Entropies and divergences of weight rows (last axis), in natural logarithms. Helpers made of ATen
// operators (CompositeImplicitAutograd): no kernel, Meta or backward of their own.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/common/checks.h"

namespace hedgerow::ops {
namespace {

void check_rows(const char* op, Named p) {
  check_inputs(op, {p});
  HEDGEROW_OP_CHECK(op, p.tensor.dim() >= 1, p.name,
                    " must have at least 1 dimension [.., N]; got a scalar");
}

void check_pair(const char* op, const at::Tensor& p, const at::Tensor& q) {
  check_inputs(op, {{"p", p}, {"q", q}});
  check_rows(op, {"p", p});
  check_shape(op, {"q", q}, p.sym_sizes(), "that of p");
}

// -sum p log p; 0 log 0 = 0, also in the gradient.
at::Tensor entropy(const at::Tensor& p) {
  check_rows("entropy", {"p", p});
  const at::Tensor safe = p.masked_fill(p == 0, 1);
  return (p * safe.log()).sum(-1).neg();
}

// sum p log(p / q): entries with p = 0 add nothing, p > 0 = q gives infinity.
at::Tensor kl_divergence(const at::Tensor& p, const at::Tensor& q) {
  check_pair("kl_divergence", p, q);
  const at::Tensor none = p == 0;
  return (p * (p.masked_fill(none, 1).log() - q.masked_fill(none, 1).log())).sum(-1);
}

// H((p + q) / 2) - (H(p) + H(q)) / 2
at::Tensor js_divergence(const at::Tensor& p, const at::Tensor& q) {
  check_pair("js_divergence", p, q);
  return entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2;
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_FRAGMENT(hedgerow, m) {
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  m.def("entropy(Tensor p) -> Tensor", tags);
  m.def("kl_divergence(Tensor p, Tensor q) -> Tensor", tags);
  m.def("js_divergence(Tensor p, Tensor q) -> Tensor", tags);
}
TORCH_LIBRARY_IMPL(hedgerow, CompositeImplicitAutograd, m) {
  m.impl("entropy", hedgerow::ops::entropy);
  m.impl("kl_divergence", hedgerow::ops::kl_divergence);
  m.impl("js_divergence", hedgerow::ops::js_divergence);
}
