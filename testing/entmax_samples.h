// Rows of the table of sample inputs for the operators of entmax.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "hedgerow/ops.h"
#include "ops/entmax/entmax.h"
#include "ops/entmax_attention/entmax_attention.h"
#include "ops/entmax_loss/entmax_loss.h"
#include "testing/operator_inputs.h"

namespace hedgerow::testing_support::samples {

// In attention of float32, scores of two implementations differ by rounding, which large alphas
// amplify without bound: heads go through [1, 2].
inline at::Tensor head_alphas(const Sizes& n, at::ScalarType dtype) {
  return at::linspace(1, 2, n.H, at::kDouble).mul(0.96).clamp_min(1).to(dtype);
}
inline at::Tensor scalar_alpha(double value, at::ScalarType dtype) {
  return at::full({}, value, at::TensorOptions().dtype(dtype));
}

// What a row operator takes after x: alpha and, for entmax alone, dim and mask.
struct RowTail {
  std::string label;
  std::function<at::Tensor(const Sizes&, at::ScalarType)> alpha;
  int64_t dim = -1;
  bool masked = false;
};
inline std::vector<RowTail> row_tails() {
  const auto scalar = [](double value) {
    return [value](const Sizes&, at::ScalarType d) { return scalar_alpha(value, d); };
  };
  return {{"softmax", scalar(1)},
          {"near softmax", [](auto&, auto) { return scalar_alpha(1 + 1e-5, at::kDouble); }},
          {"1.5 on dim 1", scalar(1.5), 1},
          {"2 masked", scalar(2), -1, true},
          {"large", scalar(4.5)},
          {"by head",
           [](const Sizes& n, at::ScalarType d) {
             return at::linspace(1, 3.5, n.H, at::kDouble).view({1, n.H, 1, 1}).to(d);
           },
           -1, true},
          {"by row",
           [](const Sizes& n, at::ScalarType) {
             return random({n.B, n.H, 1, n.S}, at::kFloat, 30).abs() + 1;
           },
           2}};
}

inline at::Tensor row_scores(const Sizes& n, at::ScalarType dtype) {
  return random({n.B, n.H, n.T, n.S}, dtype, 31, 1.5);
}
inline IValue row_mask(const Sizes& n, const RowTail& tail) {
  return tail.masked ? IValue(bool_mask({n.B, 1, 1, n.S}, 32)) : none();
}

inline std::vector<Sample> entmax_public() {
  std::vector<Sample> out;
  for (const RowTail& tail : row_tails())
    out.push_back({tail.label, [tail](const Sizes& n, at::ScalarType d) -> Stack {
                     return {row_scores(n, d), tail.alpha(n, d), tail.dim, row_mask(n, tail)};
                   }});
  return out;
}

inline std::vector<Sample> entmax_backward_samples() {
  std::vector<Sample> out;
  for (const RowTail& tail : row_tails())
    out.push_back({tail.label, [tail](const Sizes& n, at::ScalarType d) -> Stack {
                     const at::Tensor x = row_scores(n, d), alpha = tail.alpha(n, d);
                     const at::Tensor p = ops::entmax(x, alpha, tail.dim,
                                                      row_mask(n, tail).toOptional<at::Tensor>());
                     return {random(x.sizes(), d, 33), p, alpha, tail.dim, true};
                   }});
  return out;
}

inline std::vector<Sample> entmax_topk_samples() {
  std::vector<Sample> out;
  for (const int64_t k : {1, 3, 80})
    out.push_back({"k " + std::to_string(k), [k](const Sizes& n, at::ScalarType d) -> Stack {
                     return {row_scores(n, d), scalar_alpha(k == 1 ? 1 : 1.4, d), k, int64_t{-1},
                             k == 3 ? IValue(bool_mask({n.S}, 32)) : none()};
                   }});
  return out;
}

// Values beside where they stand in rows; indices of unused places mean nothing.
inline Tensors placed_values(const Tensors& t) {
  constexpr int64_t kLongest = 128;
  std::vector<int64_t> sizes = t[0].sizes().vec();
  sizes.back() = kLongest;
  return {t[0], at::zeros(sizes, t[0].options()).scatter_add(-1, t[1].clamp_min(0), t[0]), t[2]};
}

inline std::vector<Sample> fixed_alpha() {
  return {{"plain",
           [](const Sizes& n, at::ScalarType d) -> Stack {
             return {row_scores(n, d), int64_t{-1}, none()};
           }},
          {"masked", [](const Sizes& n, at::ScalarType d) -> Stack {
             return {row_scores(n, d), int64_t{2}, bool_mask({n.T, 1}, 32)};
           }}};
}

// x, target, alpha
struct LossInputs {
  at::Tensor x, target, alpha;
};
inline LossInputs loss_inputs(const Sizes& n, at::ScalarType dtype, double alpha) {
  const at::Tensor x = random({n.B, n.T, n.S}, dtype, 34, 2.0);
  at::Tensor target = random({n.B, n.T}, at::kDouble, 35).mul(1000).abs().to(at::kLong);
  target = n.S > 0 ? target.remainder(n.S) : at::full_like(target, -100);
  target = target.masked_fill(random({n.B, n.T}, at::kDouble, 36) > 1, -100);
  return {x, target, scalar_alpha(alpha, dtype)};
}
inline std::vector<Sample> loss_samples() {
  std::vector<Sample> out;
  for (const double alpha : {1.0, 1.5, 2.0, 3.0})
    out.push_back({std::to_string(alpha), [alpha](const Sizes& n, at::ScalarType d) -> Stack {
                     const LossInputs in = loss_inputs(n, d, alpha);
                     return {in.x, in.target, in.alpha, int64_t{-100}};
                   }});
  return out;
}
inline std::vector<Sample> loss_backward_samples() {
  std::vector<Sample> out;
  for (const double alpha : {1.0, 1.5, 3.0})
    out.push_back({std::to_string(alpha), [alpha](const Sizes& n, at::ScalarType d) -> Stack {
                     const LossInputs in = loss_inputs(n, d, alpha);
                     const auto [loss, dx, dalpha] =
                         ops::entmax_loss_forward(in.x, in.target, in.alpha, -100);
                     return {random(in.target.sizes(), loss.scalar_type(), 37),
                             in.x,
                             in.target,
                             in.alpha,
                             dx,
                             dalpha,
                             int64_t{-100}};
                   }});
  return out;
}

inline IValue attention_alpha(const Sizes& n, at::ScalarType dtype, const std::string& label) {
  if (label == "plain" || label == "dropout") return scalar_alpha(1.5, dtype);
  return label == "bool" ? head_alphas(n, at::kDouble) : head_alphas(n, dtype);
}

inline std::vector<Sample> entmax_attention_public() {
  std::vector<Sample> out;
  for (const auto& [label, tail] : softmax_tails())
    out.push_back({label, [label = label, tail = tail](const Sizes& n, at::ScalarType d) -> Stack {
                     const Qkv x = qkv(n, d);
                     const SoftmaxTail t = tail(n, d);
                     return {x.q,    x.k,      x.v,     attention_alpha(n, d, label),
                             t.mask, t.causal, t.scale, t.dropout,
                             t.seed};
                   }});
  return out;
}

inline std::vector<Sample> entmax_attention_backward_samples() {
  std::vector<Sample> out;
  for (const auto& [label, tail] : softmax_tails())
    out.push_back({label, [label = label, tail = tail](const Sizes& n, at::ScalarType d) -> Stack {
                     const Qkv x = qkv(n, d);
                     const SoftmaxTail t = tail(n, d);
                     const at::Tensor alpha = attention_alpha(n, d, label).toTensor();
                     const auto [o, stats, index, weight] = ops::entmax_attention_forward(
                         x.q, x.k, x.v, alpha, t.mask.toOptional<at::Tensor>(), t.causal,
                         t.scale.toOptional<double>(), t.dropout, t.seed.toOptional<int64_t>());
                     const bool mask_grad =
                         t.mask.isTensor() && t.mask.toTensor().is_floating_point();
                     return {random({n.B, n.H, n.T, n.Dv}, d, 14),
                             x.q,
                             x.k,
                             x.v,
                             alpha,
                             stats,
                             index,
                             weight,
                             t.mask,
                             t.causal,
                             t.scale,
                             t.dropout,
                             t.seed,
                             true,
                             mask_grad};
                   }});
  return out;
}

// The output, and the kept weights at their keys (all keys are kept at these sizes).
inline Tensors dense_support(const Tensors& t) {
  const at::Tensor keys = t[2].to(at::kLong).bitwise_and(0xffff);
  return {t[0], at::zeros_like(t[3]).scatter_add(-1, keys, t[3])};
}

inline std::vector<OperatorSamples> entmax_rows() {
  std::vector<OperatorSamples> t;
  t.push_back({"entmax", entmax_public()});
  t.push_back({"entmax_backward", entmax_backward_samples()});
  t.push_back({"entmax_topk", entmax_topk_samples(), false, false, placed_values});
  t.push_back({"sparsemax", fixed_alpha()});
  t.push_back({"entmax15", fixed_alpha()});
  t.push_back({"entmax_loss", loss_samples()});
  t.push_back({"entmax_loss_forward", loss_samples()});
  t.push_back({"entmax_loss_backward", loss_backward_samples()});
  t.push_back({"entmax_attention", entmax_attention_public()});
  t.push_back({"entmax_attention_forward", entmax_attention_public(), false, false, dense_support});
  t.push_back({"entmax_attention_backward", entmax_attention_backward_samples()});
  return t;
}

}  // namespace hedgerow::testing_support::samples
