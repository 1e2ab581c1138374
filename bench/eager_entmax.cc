#include "bench/eager_entmax.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

namespace hedgerow::bench {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kFirstK = 32;
constexpr int kBisections = 50;

// s * g - s * (sum s g) / (sum s)
at::Tensor row_gradient(const at::Tensor& s, const at::Tensor& grad) {
  const at::Tensor sg = s * grad;
  return sg - s * (sg.sum(-1, true) / s.sum(-1, true));
}

// Threshold of z / 2 for sorted (descending) leading entries, and whether the support is inside.
std::pair<at::Tensor, bool> threshold15(const at::Tensor& top) {
  const at::Tensor rho = at::arange(1, top.size(-1) + 1, top.options());
  const at::Tensor mean = top.cumsum(-1) / rho, mean_square = top.square().cumsum(-1) / rho;
  const at::Tensor spread = rho * (mean_square - mean.square());
  const at::Tensor tau = mean - ((1 - spread) / rho).clamp_min(0).sqrt();
  const at::Tensor size = (tau <= top).sum(-1, true);  // of the support
  return {tau.gather(-1, size - 1), size.max().item<int64_t>() < top.size(-1)};
}

struct Entmax15 : torch::autograd::Function<Entmax15> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    const at::Tensor z = (x - x.amax(-1, true)) / 2;
    at::Tensor tau;
    for (int64_t k = kFirstK;; k *= 2) {
      const int64_t count = std::min(k, z.size(-1));
      const auto [found, inside] = threshold15(std::get<0>(z.topk(count, -1)));
      tau = found;
      if (inside || count == z.size(-1)) break;
    }
    const at::Tensor p = (z - tau).clamp_min(0).square();
    ctx->save_for_backward({p});
    return p;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {row_gradient(ctx->get_saved_variables()[0].sqrt(), grads[0])};
  }
};

struct Bisect : torch::autograd::Function<Bisect> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& alpha) {
    const at::Tensor e = alpha - 1, power = e.reciprocal();
    const at::Tensor z = x * e;
    at::Tensor low = z.amax(-1, true) - 1;
    at::Tensor step = 1 - at::pow(1.0 / static_cast<double>(x.size(-1)), e);
    const auto weights = [&](const at::Tensor& tau) { return (z - tau).clamp_min(0).pow(power); };
    at::Tensor p;
    for (int i = 0; i < kBisections; i++) {
      step = step / 2;
      const at::Tensor middle = low + step;
      p = weights(middle);
      low = at::where(p.sum(-1, true) >= 1, middle, low);
    }
    p = p / p.sum(-1, true);
    ctx->save_for_backward({p, alpha});
    return p;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &p = saved[0], &alpha = saved[1], &g = grads[0];
    const at::Tensor s = at::where(p > 0, p.pow(2 - alpha), 0);
    at::Tensor dalpha;
    if (alpha.requires_grad()) {
      const at::Tensor share = s / s.sum(-1, true), e = alpha - 1;
      const at::Tensor entropy = at::where(p > 0, -p * p.log(), 0);
      const at::Tensor dp =
          (p - share) / e.square() + (entropy - share * entropy.sum(-1, true)) / e;
      dalpha = (g * dp).sum_to_size(alpha.sizes());
    }
    return {row_gradient(s, g), dalpha};
  }
};

}  // namespace

at::Tensor eager_entmax15(const at::Tensor& x) { return Entmax15::apply(x); }
at::Tensor eager_entmax_bisect(const at::Tensor& x, const at::Tensor& alpha) {
  return Bisect::apply(x, alpha);
}

}  // namespace hedgerow::bench
