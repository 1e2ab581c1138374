#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/common/dispatch.h"
#include "ops/selected_scores/selected_scores.h"

namespace hedgerow::ops {
namespace {

at::Tensor selected_scores_meta(const at::Tensor& q, const at::Tensor& k,
                                const at::Tensor& positions) {
  check_selected_scores("selected_scores", q, k, positions);
  return at::empty_symint({q.sym_size(0), q.sym_size(1), q.sym_size(2), positions.sym_size(2)},
                          q.options().dtype(accumulate_dtype(q.scalar_type())));
}

SelectedGrads selected_scores_backward_meta(const at::Tensor&, const at::Tensor& q,
                                            const at::Tensor& k, const at::Tensor& positions) {
  check_selected_scores("selected_scores_backward", q, k, positions);
  return {at::empty_symint(q.sym_sizes(), q.options()),
          at::empty_symint(k.sym_sizes(), k.options())};
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Meta, m) {
  m.impl("selected_scores", hedgerow::ops::selected_scores_meta);
  m.impl("selected_scores_backward", hedgerow::ops::selected_scores_backward_meta);
}
