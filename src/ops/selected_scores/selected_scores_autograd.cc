#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/common/composite_gradient.h"
#include "ops/common/dispatch.h"
#include "ops/common/path.h"
#include "ops/selected_scores/selected_scores.h"

namespace hedgerow::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SelectedScores : torch::autograd::Function<SelectedScores> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& positions) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({q, k, positions});
    return selected_scores(q, k, positions);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto [grad_q, grad_k] = selected_scores_backward(grads[0], saved[0], saved[1], saved[2]);
    return {grad_q, grad_k, {}};
  }
};

at::Tensor selected_scores_autograd(const at::Tensor& q, const at::Tensor& k,
                                    const at::Tensor& positions) {
  const char* op = "selected_scores";
  if (!records_gradient({q, k})) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return selected_scores(q, k, positions);
  }
  check_selected_scores(op, q, k, positions);
  if (!use_fast(op, on_kernel_device(q), "a device without a kernel"))
    return selected_scores_composite(q, k, positions);
  return SelectedScores::apply(q, k, positions);
}

SelectedGrads selected_scores_backward_autograd(const at::Tensor& grad, const at::Tensor& q,
                                                const at::Tensor& k, const at::Tensor& positions) {
  if (records_gradient({grad, q, k}))
    return selected_scores_backward_composite(grad, q, k, positions);
  at::AutoDispatchBelowADInplaceOrView guard;
  return selected_scores_backward(grad, q, k, positions);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Autograd, m) {
  m.impl("selected_scores", hedgerow::ops::selected_scores_autograd);
  m.impl("selected_scores_backward", hedgerow::ops::selected_scores_backward_autograd);
}
