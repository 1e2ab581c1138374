// The definition in ATen operators: keys are gathered.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/common/composite_gradient.h"
#include "ops/common/dispatch.h"
#include "ops/selected_scores/selected_scores.h"

namespace hedgerow::ops {

at::Tensor selected_scores_composite(const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& positions) {
  const at::ScalarType dtype = accumulate_dtype(q.scalar_type());
  const c10::SymInt batch = k.sym_size(0), heads = q.sym_size(1), kv_heads = k.sym_size(1),
                    width = k.sym_size(3), queries = q.sym_size(2), count = positions.sym_size(2);
  const c10::SymInt groups = kv_heads == 0 ? c10::SymInt(1) : heads / kv_heads;
  // the positions of the heads that share a key head stand in one row
  const c10::SymInt rows = groups * queries * count;
  const at::Tensor index = positions.expand_symint({heads, queries, count})
                               .reshape_symint({1, kv_heads, rows, 1})
                               .expand_symint({batch, kv_heads, rows, width});
  const at::Tensor keys =
      at::gather(k.to(dtype), 2, index).reshape_symint({batch, heads, queries, count, width});
  return at::matmul(keys, q.to(dtype).unsqueeze(-1)).squeeze(-1);
}

SelectedGrads selected_scores_backward_composite(const at::Tensor& grad, const at::Tensor& q,
                                                 const at::Tensor& k, const at::Tensor& positions) {
  const auto forward = [&](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
    return {selected_scores_composite(in[0], in[1], positions)};
  };
  const auto grads = composite_gradient(forward, {q, k}, {true, true}, {grad});
  return {or_zeros(grads[0], q), or_zeros(grads[1], k)};
}

namespace {

at::Tensor selected_scores_any(const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& positions) {
  check_selected_scores("selected_scores", q, k, positions);
  return selected_scores_composite(q, k, positions);
}

SelectedGrads selected_scores_backward_any(const at::Tensor& grad, const at::Tensor& q,
                                           const at::Tensor& k, const at::Tensor& positions) {
  check_selected_scores("selected_scores_backward", q, k, positions);
  return selected_scores_backward_composite(grad, q, k, positions);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CompositeExplicitAutograd, m) {
  m.impl("selected_scores", hedgerow::ops::selected_scores_any);
  m.impl("selected_scores_backward", hedgerow::ops::selected_scores_backward_any);
}
