// The definition, in ATen operators: any device. Rows are solved in float64 over scores sorted in
// descending order; which form holds is METHODS' choice of a well-conditioned unknown.
//   alpha <= 2: p = exp(log1p(e (z - lambda)) / e), e = alpha - 1, solved for lambda
//   alpha  > 2: p = (e (z - z_min) + p_min^e)^(1 / e), solved for p_min, the smallest weight
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <torch/library.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ops/entmax/entmax.h"

namespace hedgerow::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
// Newton's method starts next to the root, on a function that is smooth and convex: it gains at
// least a binary digit a step at first and doubles the digits at the end (tests hold it to 1e-13).
constexpr int kNewtonSteps = 24;

// alpha - 1 in float64, broadcastable to rows [..,n] whose last dimension was `dim`.
at::Tensor excess(const at::Tensor& alpha, int64_t dim) {
  const at::Tensor e = alpha.to(at::kDouble) - 1;
  return e.dim() == 0 ? e : e.movedim(dim, -1);
}

at::Tensor last(const at::Tensor& t, int64_t dim) { return t.movedim(dim, -1).to(at::kDouble); }

// Rows of scores less their maximum, [..,n], and what solving them needs.
struct Rows {
  at::Tensor z;       // -inf where excluded; zeros in blind rows
  at::Tensor sorted;  // z in descending order
  at::Tensor e;       // alpha - 1, [..,1] or 0-dim
  at::Tensor size;    // int64 [..,1]: how many entries the support has
  at::Tensor next;    // [..,1]: the largest score outside of the support, -inf without one
};

// Entry z_k is in the support when the weights of those above it sum to less than 1 at the
// threshold z_k; that sum grows along the sorted row, so that halving finds the last such entry.
void find_support(Rows& rows) {
  const int64_t n = rows.z.size(-1);
  rows.sorted = std::get<0>(rows.z.sort(-1, /*descending=*/true));
  const at::Tensor inverse = rows.e.reciprocal();  // inf at alpha = 1: powers below 1 vanish
  at::Tensor low = at::ones_like(rows.z.narrow(-1, 0, 1), at::kLong), high = low * n;
  for (int step = std::bit_width(static_cast<uint64_t>(n)); step > 0; step--) {
    const at::Tensor middle = (low + high + 1).div(2, "floor");
    const at::Tensor bound = rows.sorted.gather(-1, middle - 1);
    const at::Tensor above = (rows.e * (rows.sorted - bound)).clamp_min(0).pow(inverse);
    const at::Tensor inside = (above.sum(-1, true) < 1).logical_and(bound > -kInf);
    low = at::where(inside, middle, low);
    high = at::where(inside, high, (middle - 1).maximum(low));
  }
  rows.size = low;
  rows.next = rows.sorted.gather(-1, low.clamp_max(n - 1)).masked_fill(low == n, -kInf);
}

// Weights at lambda, and s = p^(2 - alpha).
struct Weights {
  at::Tensor p, s;
};
Weights weights_at(const Rows& rows, const at::Tensor& lambda) {
  const at::Tensor w = rows.z - lambda, x = rows.e * w;
  const at::Tensor softmax = rows.e == 0;
  const at::Tensor inside = at::where(softmax, w > -kInf, x > -1);
  const at::Tensor log_u = x.masked_fill(inside.logical_not(), 0).log1p();
  const at::Tensor log_p = at::where(softmax, w, log_u / rows.e.masked_fill(softmax, 1));
  const at::Tensor outside = inside.logical_not();
  return {log_p.exp().masked_fill(outside, 0), (log_p - log_u).exp().masked_fill(outside, 0)};
}

// Newton's method on the (1/e)-norm of e (z - lambda) + 1, which is convex in lambda: from the left
// end of the support's interval it rises to the root.
at::Tensor solve_lambda(const Rows& rows) {
  const at::Tensor softmax = rows.e == 0, safe = rows.e.masked_fill(softmax, 1);
  at::Tensor lambda = at::where(softmax, -kInf, rows.next + safe.reciprocal()).clamp_min(0);
  for (int step = 0; step < kNewtonSteps; step++) {
    const auto [p, s] = weights_at(rows, lambda);
    const at::Tensor log_sum = p.sum(-1, true).log();
    const at::Tensor norm = at::where(softmax, log_sum, (rows.e * log_sum).expm1() / safe);
    lambda = lambda + norm * (log_sum - rows.e * log_sum).exp() / s.sum(-1, true);
  }
  return weights_at(rows, lambda).p;
}

// Newton's method on sum p - 1, convex in p_min: from the largest possible p_min it falls to the
// root. The slope is at least 1, so that p is as accurate as its sum.
at::Tensor solve_smallest(const Rows& rows) {
  const at::Tensor inverse = rows.e.reciprocal();
  const at::Tensor smallest = rows.sorted.gather(-1, rows.size - 1);  // [..,1]
  const at::Tensor inside = rows.z >= smallest;
  const at::Tensor outside = inside.logical_not();
  const at::Tensor d = (rows.e * (rows.z - smallest)).masked_fill(outside, 0);
  const auto weights = [&](const at::Tensor& p_min) {
    return at::where(d == 0, p_min, (d + p_min.pow(rows.e)).pow(inverse)).masked_fill(outside, 0);
  };
  const at::Tensor top = rows.size.to(at::kDouble)
                             .reciprocal()
                             .minimum((rows.e * (smallest - rows.next)).pow(inverse));
  at::Tensor p_min = top;
  for (int step = 0; step < kNewtonSteps; step++) {
    const at::Tensor p = weights(p_min);
    const at::Tensor ratio = at::where(d == 0, 1.0, p_min / p.masked_fill(p == 0, 1));
    const at::Tensor slope = ratio.pow(rows.e - 1).masked_fill(outside, 0).sum(-1, true);
    p_min = (p_min - (p.sum(-1, true) - 1) / slope).clamp_min(0).minimum(top);
  }
  return weights(p_min);
}

// z [..,n] in float64, n > 0, -inf where excluded.
at::Tensor solve_rows(const at::Tensor& z, const at::Tensor& e) {
  const at::Tensor top = z.amax(-1, true);
  const at::Tensor blind = top == -kInf;
  // +inf is the limit of large scores: such entries share the row
  const at::Tensor shifted =
      at::where(top == kInf, at::where(z == kInf, 0.0, -kInf), (z - top).masked_fill(blind, 0));
  Rows rows{shifted, {}, e, {}, {}};
  find_support(rows);
  const at::Tensor large = e > 1;
  at::Tensor p;
  if (!large.all().item<bool>()) p = solve_lambda(rows);
  if (large.any().item<bool>())
    p = p.defined() ? at::where(large, solve_smallest(rows), p) : solve_smallest(rows);
  return p.masked_fill(blind, 0).masked_fill(top.isnan(), std::nan(""));
}

}  // namespace

at::Tensor entmax_composite(const at::Tensor& x, const at::Tensor& alpha, int64_t dim,
                            const OptTensor& mask) {
  if (x.numel() == 0) return at::empty_like(x, at::MemoryFormat::Contiguous);
  at::Tensor z = last(x.detach(), dim);
  if (mask) z = z.masked_fill(mask->logical_not().expand(x.sizes()).movedim(dim, -1), -kInf);
  const at::Tensor p = solve_rows(z, excess(alpha.detach(), dim));
  return p.to(x.scalar_type()).movedim(-1, dim).contiguous();
}

namespace {

// sum_k c_k x^k with c_0 = first and c_k = c_{k-1} / (k + shift), for |x| <= 1/2.
at::Tensor exponential_tail(const at::Tensor& x, double first, int shift) {
  constexpr int kTerms = 15;
  at::Tensor sum = at::ones_like(x);
  for (int k = kTerms; k >= 1; k--) sum = 1 + sum * x / (k + shift);
  return sum * first;
}

// With w = z - lambda, the part of dp/dalpha at constant s-weighted mean: -p (e^t - 1 - t) / e^2,
// t = -e log p >= 0; its limit -p log^2 p / 2 at e = 0. Above alpha = 2 the term -s / e^2, whose
// product with the centred gradient sums to 0, is left out: it overflows.
at::Tensor alpha_direction(const at::Tensor& p, const at::Tensor& log_p, const at::Tensor& s,
                           const at::Tensor& e) {
  const at::Tensor t = -e * log_p;
  const at::Tensor near = t.detach().abs() <= 0.5;
  const at::Tensor series =
      -p * log_p.square() * exponential_tail(t.masked_fill(near.logical_not(), 0), 0.5, 2);
  const at::Tensor square = e.masked_fill(e == 0, 1).square();
  const at::Tensor plain = p * (1 + t);
  const at::Tensor below = at::where(near, series, (plain - s) / square);
  return at::where(e > 1, plain / square, below);
}

}  // namespace

EntmaxGrads entmax_backward_composite(const at::Tensor& grad, const at::Tensor& p,
                                      const at::Tensor& alpha, int64_t dim, bool alpha_grad) {
  const at::Tensor none = at::empty({0}, alpha.options().requires_grad(false));
  const at::Tensor e = excess(alpha, dim), weight = last(p, dim);
  if (weight.sym_numel() == 0)
    return {at::zeros_like(p), alpha_grad ? at::zeros_like(alpha) : none};
  const at::Tensor off = weight.detach() <= 0;
  const at::Tensor log_p = weight.masked_fill(off, 1).log(), log_s = (1 - e) * log_p;
  // s relative to the row's largest, for the mean; s itself saturates instead of overflowing
  const auto [largest, place] = log_s.detach().masked_fill(off, -kInf).max(-1, true);
  const at::Tensor blind = largest == -kInf;
  const at::Tensor share = (log_s - largest.masked_fill(blind, 0)).exp().masked_fill(off, 0);
  const at::Tensor s = log_s.clamp_max(700).exp().masked_fill(off, 0);
  const at::Tensor g = last(grad, dim).masked_fill(off, 0);
  const at::Tensor near = g - g.gather(-1, place);  // so that one dominant entry costs no digits
  const at::Tensor mean = (share * near).sum(-1, true) / share.sum(-1, true).masked_fill(blind, 1);
  const at::Tensor centred = (near - mean).masked_fill(off, 0);
  // above alpha = 2 the largest s may be huge, and its entry is what the others leave
  const at::Tensor each = s * centred;
  const at::Tensor is_largest = at::zeros_like(off).scatter(-1, place, true).logical_and(e > 1);
  const at::Tensor others = each.masked_fill(is_largest, 0);
  const at::Tensor dz = at::where(is_largest, -others.sum(-1, true), others);
  const at::Tensor grad_x = dz.movedim(-1, dim).to(p.scalar_type());
  if (!alpha_grad) return {grad_x, none};
  const at::Tensor rows = (alpha_direction(weight, log_p, s, e) * centred).sum(-1, true);
  const at::Tensor grad_alpha =
      alpha.dim() == 0 ? rows.sum() : at::sum_to(rows.movedim(-1, dim), alpha.sym_sizes());
  return {grad_x, grad_alpha.to(alpha.scalar_type())};
}

TopK entmax_topk_composite(const at::Tensor& x, const at::Tensor& alpha, int64_t k, int64_t dim,
                           const OptTensor& mask) {
  const int64_t n = x.size(dim), kept = std::min(k, n);
  at::Tensor visible = x.detach();
  if (mask) visible = visible.masked_fill(mask->logical_not().expand(x.sizes()), -kInf);
  const at::Tensor order = std::get<1>(visible.sort(/*stable=*/true, dim, /*descending=*/true));
  const at::Tensor whole = entmax_composite(visible, alpha, dim, {});
  const at::Tensor places = order.narrow(dim, 0, kept);
  at::Tensor values = entmax_composite(visible.gather(dim, places), alpha, dim, {});
  at::Tensor indices = places.masked_fill(values == 0, -1);
  std::vector<int64_t> missing = x.sizes().vec();
  missing[dim] = k - kept;
  values = at::cat({values, at::zeros(missing, values.options())}, dim);
  indices = at::cat({indices, at::full(missing, -1, indices.options())}, dim);
  return {values, indices, (whole > 0).sum(dim) <= k};
}

namespace {

at::Tensor entmax_any(const at::Tensor& x, const at::Tensor& alpha, int64_t dim,
                      const OptTensor& mask) {
  const int64_t d = check_entmax("entmax", x, alpha, dim, mask);
  check_alpha_values("entmax", alpha);
  return entmax_composite(x, alpha, d, mask);
}

EntmaxGrads entmax_backward_any(const at::Tensor& grad, const at::Tensor& p,
                                const at::Tensor& alpha, int64_t dim, bool alpha_grad) {
  const int64_t d = check_entmax_backward(grad, p, alpha, dim);
  check_alpha_values("entmax_backward", alpha);
  return entmax_backward_composite(grad, p, alpha, d, alpha_grad);
}

TopK entmax_topk_any(const at::Tensor& x, const at::Tensor& alpha, int64_t k, int64_t dim,
                     const OptTensor& mask) {
  const int64_t d = check_entmax_topk(x, alpha, k, dim, mask);
  check_alpha_values("entmax_topk", alpha);
  return entmax_topk_composite(x, alpha, k, d, mask);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CompositeExplicitAutograd, m) {
  m.impl("entmax", hedgerow::ops::entmax_any);
  m.impl("entmax_backward", hedgerow::ops::entmax_backward_any);
  m.impl("entmax_topk", hedgerow::ops::entmax_topk_any);
}
