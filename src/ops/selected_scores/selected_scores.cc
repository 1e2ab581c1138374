#include "ops/selected_scores/selected_scores.h"

#include <ATen/ATen.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <torch/library.h>

#include "ops/common/checks.h"
#include "ops/common/dispatch.h"

namespace hedgerow::ops {

void check_selected_scores(const char* op, const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& positions) {
  check_inputs(op, {{"q", q}, {"k", k}});
  check_qk(op, {"q", q}, {"k", k});
  HEDGEROW_OP_CHECK(op, positions.scalar_type() == at::kLong, "positions must be int64; got ",
                    dtype_text(positions.scalar_type()));
  HEDGEROW_OP_CHECK(op, positions.device() == q.device(), "positions must be on the device of q, ",
                    q.device().str(), "; got ", positions.device().str());
  HEDGEROW_OP_CHECK(op,
                    positions.dim() == 3 &&
                        (positions.sym_size(0) == 1 || positions.sym_size(0) == q.sym_size(1)) &&
                        positions.sym_size(1) == q.sym_size(2),
                    "positions must be [1 or H, T, P] with the heads and queries of q; got shape ",
                    shape_text(positions), " and q shape ", shape_text(q));
  if (at::isTensorSubclassLike(positions) || positions.numel() == 0) return;  // nothing to look at
  const auto [low, high] = at::aminmax(positions);
  const c10::SymInt keys = k.sym_size(2);
  for (const int64_t end : {low.item<int64_t>(), high.item<int64_t>()})
    HEDGEROW_OP_CHECK(op, end >= 0 && end < keys, "positions must be in [0, ", keys, "); got ",
                      end);
}

at::Tensor selected_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& positions) {
  static const auto op = find_op<decltype(selected_scores)>("hedgerow::selected_scores");
  return op.call(q, k, positions);
}

SelectedGrads selected_scores_backward(const at::Tensor& grad, const at::Tensor& q,
                                       const at::Tensor& k, const at::Tensor& positions) {
  static const auto op =
      find_op<decltype(selected_scores_backward)>("hedgerow::selected_scores_backward");
  return op.call(grad, q, k, positions);
}

}  // namespace hedgerow::ops

TORCH_LIBRARY_FRAGMENT(hedgerow, m) {
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  m.def("selected_scores(Tensor q, Tensor k, Tensor positions) -> Tensor", tags);
  m.def(
      "selected_scores_backward(Tensor grad, Tensor q, Tensor k, Tensor positions) -> "
      "(Tensor grad_q, Tensor grad_k)",
      tags);
}
