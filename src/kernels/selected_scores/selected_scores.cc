// Policy: what is a task. No vector code here.
#include "hedgerow/kernels/selected_scores.h"

#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "kernels/selected_scores/selected_scores_internal.h"

namespace hedgerow::kernels {

// Queries of a head in one task of the forward: enough to hide what a task costs.
constexpr int64_t kTaskQueries = 128;

void selected_scores_forward(const SelectedScoresParams& p, void* scores) {
  if (p.dtype == DType::kFloat64) return selected_scores_forward_reference(p, scores);
  const SelectedRows rows = pack_selected(p);
  const int64_t blocks = (p.queries + kTaskQueries - 1) / kTaskQueries,
                tasks = p.batch * p.heads * blocks;
  std::vector<SelectedScratch> scratch(max_workers(tasks));
  parallel_for(tasks, [&](int64_t task, int64_t worker) {
    const int64_t bh = task / blocks, t0 = task % blocks * kTaskQueries;
    selected_forward_rows(p, rows, bh / p.heads, bh % p.heads, t0,
                          std::min(p.queries, t0 + kTaskQueries), static_cast<float*>(scores),
                          scratch[worker]);
  });
}

void selected_scores_backward(const SelectedScoresParams& p, const void* grad, const MutTensor& dq,
                              const MutTensor& dk) {
  if (p.dtype == DType::kFloat64) return selected_scores_backward_reference(p, grad, dq, dk);
  const SelectedRows rows = pack_selected(p);
  const int64_t tasks = p.batch * p.kv_heads;
  std::vector<SelectedScratch> scratch(max_workers(tasks));
  parallel_for(tasks, [&](int64_t task, int64_t worker) {
    selected_backward_group(p, rows, task / p.kv_heads, task % p.kv_heads,
                            static_cast<const float*>(grad), dq, dk, scratch[worker]);
  });
}

}  // namespace hedgerow::kernels
