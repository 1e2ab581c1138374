// alpha-entmax of rows: what its files share. Contract: hedgerow/ops.h. Folder: schemas, checks and
// C++ entries (.cc), CPU, Meta, Autograd and composite kernels, top-k rows, helpers, test.
//
// Operators: entmax (public), entmax_backward (from the weights alone: they are all that is saved)
// and entmax_topk, whose gradient is entmax_backward of its compact rows. Helpers: sparsemax,
// entmax15.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

#include "ops/common/checks.h"

namespace hedgerow::ops {

// alpha is floating (any width) and on the device of `like`.
void check_alpha_tensor(const char* op, const at::Tensor& alpha, const at::Tensor& like);

// The same, and 0-dim, or of x's rank with size 1 on dim and sizes of 1 or x's elsewhere.
void check_alpha_of_rows(const char* op, const at::Tensor& alpha, const at::Tensor& x, int64_t dim);

// Every entry is finite and at least 1. Looks at the data, so it does nothing where there is none:
// Meta and fake tensors (torch.compile), whose kernels check when they run.
void check_alpha_values(const char* op, const at::Tensor& alpha);

// Everything but alpha's values; returns dim counted from the front.
int64_t check_entmax(const char* op, const at::Tensor& x, const at::Tensor& alpha, int64_t dim,
                     const OptTensor& mask);
int64_t check_entmax_backward(const at::Tensor& grad, const at::Tensor& p, const at::Tensor& alpha,
                              int64_t dim);
int64_t check_entmax_topk(const at::Tensor& x, const at::Tensor& alpha, int64_t k, int64_t dim,
                          const OptTensor& mask);

// The definition in ATen operators, solved in float64 and rounded once to x's dtype. Carries no
// gradient: that is entmax_backward_composite of the result. dim counts from the front.
at::Tensor entmax_composite(const at::Tensor& x, const at::Tensor& alpha, int64_t dim,
                            const OptTensor& mask);

// (grad x [of p's shape and dtype], grad alpha [of alpha's; of size [0] unless wanted]) at weights
// p. Differentiable in grad, p and alpha.
using EntmaxGrads = std::tuple<at::Tensor, at::Tensor>;
EntmaxGrads entmax_backward_composite(const at::Tensor& grad, const at::Tensor& p,
                                      const at::Tensor& alpha, int64_t dim, bool alpha_grad);

// (values, indices, complete), see hedgerow/ops.h.
using TopK = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
TopK entmax_topk_composite(const at::Tensor& x, const at::Tensor& alpha, int64_t k, int64_t dim,
                           const OptTensor& mask);

// Through the dispatcher.
EntmaxGrads entmax_backward(const at::Tensor& grad, const at::Tensor& p, const at::Tensor& alpha,
                            int64_t dim, bool alpha_grad);

}  // namespace hedgerow::ops
