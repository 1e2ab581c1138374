// Shapes and dtypes only; sizes may be symbolic.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/common/struct_operator.h"
#include "ops/talking_heads_attention/talking_heads_attention.h"

namespace hedgerow::ops {
namespace {

at::Tensor attention_meta(const TalkingHeadsInputs& in) {
  check_talking_heads_attention("talking_heads_attention", in);
  return at::empty_symint(
      {in.q.sym_size(0), head_counts(in).value, in.q.sym_size(2), in.v.sym_size(3)},
      in.q.options());
}

TalkingHeadsGrads backward_meta(const TalkingHeadsInputs& in, const at::Tensor& grad,
                                WantedGrads wanted) {
  check_talking_heads_backward(in, grad, wanted);
  const auto like = [](const at::Tensor& t) {
    return at::empty_symint(t.sym_sizes(), t.options());
  };
  GradArray grads = {like(in.q), like(in.k), like(in.v)};
  const auto tensors = optional_tensors(in);
  for (size_t i = 0; i < kNumOptional; i++)
    grads[3 + i] = wanted[i] ? like(**tensors[i]) : at::empty({0}, in.q.options());
  return std::tuple_cat(grads);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Meta, m) {
  using namespace hedgerow::ops;
  m.impl("talking_heads_attention", kStructKernel<&attention_meta>);
  m.impl("talking_heads_attention_backward", kStructKernel<&backward_meta>);
}
