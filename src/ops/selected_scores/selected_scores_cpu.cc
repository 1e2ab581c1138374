#include <ATen/ATen.h>
#include <torch/library.h>

#include "hedgerow/kernels/selected_scores.h"
#include "ops/common/checks.h"
#include "ops/common/dispatch.h"
#include "ops/common/path.h"
#include "ops/selected_scores/selected_scores.h"

namespace hedgerow::ops {
namespace {

kernels::SelectedScoresParams params(const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& positions) {
  kernels::SelectedScoresParams p;
  p.dtype = kernel_dtype(q.scalar_type());
  p.batch = q.size(0);
  p.heads = q.size(1);
  p.kv_heads = k.size(1);
  p.queries = q.size(2);
  p.keys = k.size(2);
  p.width = q.size(3);
  p.selected = positions.size(2);
  p.q = const_view(q);
  p.k = const_view(k);
  p.positions = positions.const_data_ptr<int64_t>();
  p.by_head = positions.size(0) == p.heads;
  return p;
}

at::Tensor selected_scores_cpu(const at::Tensor& q_in, const at::Tensor& k_in,
                               const at::Tensor& positions_in) {
  check_selected_scores("selected_scores", q_in, k_in, positions_in);
  if (!use_fast("selected_scores", true, ""))
    return selected_scores_composite(q_in, k_in, positions_in);
  const at::Tensor q = rows_contiguous(q_in), k = rows_contiguous(k_in),
                   positions = positions_in.contiguous();
  const at::Tensor scores = fresh({q.size(0), q.size(1), q.size(2), positions.size(2)},
                                  q.options().dtype(accumulate_dtype(q.scalar_type())));
  kernels::selected_scores_forward(params(q, k, positions), scores.mutable_data_ptr());
  return scores;
}

SelectedGrads selected_scores_backward_cpu(const at::Tensor& grad_in, const at::Tensor& q_in,
                                           const at::Tensor& k_in, const at::Tensor& positions_in) {
  const char* op = "selected_scores_backward";
  check_selected_scores(op, q_in, k_in, positions_in);
  if (!use_fast(op, true, ""))
    return selected_scores_backward_composite(grad_in, q_in, k_in, positions_in);
  const at::Tensor q = rows_contiguous(q_in), k = rows_contiguous(k_in),
                   positions = positions_in.contiguous();
  const at::Tensor grad = grad_in.to(accumulate_dtype(q.scalar_type())).contiguous();
  check_shape(op, {"grad", grad}, {q.size(0), q.size(1), q.size(2), positions.size(2)},
              "[B, H, T, P]");
  const at::Tensor grad_q = fresh(q.sizes(), q.options()), grad_k = fresh(k.sizes(), k.options());
  kernels::selected_scores_backward(params(q, k, positions), grad.const_data_ptr(),
                                    mut_view(grad_q), mut_view(grad_k));
  return {grad_q, grad_k};
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CPU, m) {
  m.impl("selected_scores", hedgerow::ops::selected_scores_cpu);
  m.impl("selected_scores_backward", hedgerow::ops::selected_scores_backward_cpu);
}
