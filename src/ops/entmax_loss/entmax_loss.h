// The Fenchel-Young loss of entmax: what its files share. Contract: hedgerow/ops.h.
//
// Operators: entmax_loss (public), entmax_loss_forward (also gives the gradients of each row's
// loss, which are saved for the backward) and entmax_loss_backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

#include "ops/common/checks.h"

namespace hedgerow::ops {

// Everything but data.
void check_entmax_loss(const char* op, const at::Tensor& x, const at::Tensor& target,
                       const at::Tensor& alpha);
void check_entmax_loss_backward(const at::Tensor& grad, const at::Tensor& x,
                                const at::Tensor& target, const at::Tensor& alpha,
                                const at::Tensor& row_grad_x, const at::Tensor& row_grad_alpha);
// Targets are classes or ignore_index; alpha is finite and at least 1. Only where there is data.
void check_entmax_loss_values(const char* op, const at::Tensor& x, const at::Tensor& target,
                              const at::Tensor& alpha, int64_t ignore_index);

// (loss [..] of the accumulation dtype; its gradients by x [..,C] and by alpha [..]). Of the
// accumulation dtype, without gradients of their own.
using EntmaxLossRows = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
EntmaxLossRows entmax_loss_composite(const at::Tensor& x, const at::Tensor& target,
                                     const at::Tensor& alpha, int64_t ignore_index);

// (grad x, grad alpha), differentiable in grad, x and alpha.
using EntmaxLossGrads = std::tuple<at::Tensor, at::Tensor>;
EntmaxLossGrads entmax_loss_backward_composite(const at::Tensor& grad, const at::Tensor& x,
                                               const at::Tensor& target, const at::Tensor& alpha,
                                               int64_t ignore_index);

// The same from the rows' saved gradients.
EntmaxLossGrads entmax_loss_backward_of_rows(const at::Tensor& grad, const at::Tensor& x,
                                             const at::Tensor& alpha, const at::Tensor& row_grad_x,
                                             const at::Tensor& row_grad_alpha);

// Through the dispatcher.
EntmaxLossRows entmax_loss_forward(const at::Tensor& x, const at::Tensor& target,
                                   const at::Tensor& alpha, int64_t ignore_index);
EntmaxLossGrads entmax_loss_backward(const at::Tensor& grad, const at::Tensor& x,
                                     const at::Tensor& target, const at::Tensor& alpha,
                                     const at::Tensor& row_grad_x, const at::Tensor& row_grad_alpha,
                                     int64_t ignore_index);

}  // namespace hedgerow::ops
