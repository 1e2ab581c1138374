// Scores of keys of its own for each query: a helper of partial attention.
//
//   selected_scores(q [B,H,T,D], k [B,Hkv,S,D], positions int64 [1 or H,T,P]) -> [B,H,T,P]
//   scores[b,h,t,p] = q[b,h,t] . k[b,g,positions[h,t,p]], not scaled, without a mask; float64 of
//   float64, else float32. Gradients for q and k. A position out of range is refused, one that
//   stands twice is not.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace hedgerow::ops {

void check_selected_scores(const char* op, const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& positions);

at::Tensor selected_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& positions);
at::Tensor selected_scores_composite(const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& positions);

// Gradients of q and k.
using SelectedGrads = std::tuple<at::Tensor, at::Tensor>;
SelectedGrads selected_scores_backward(const at::Tensor& grad, const at::Tensor& q,
                                       const at::Tensor& k, const at::Tensor& positions);
SelectedGrads selected_scores_backward_composite(const at::Tensor& grad, const at::Tensor& q,
                                                 const at::Tensor& k, const at::Tensor& positions);

}  // namespace hedgerow::ops
