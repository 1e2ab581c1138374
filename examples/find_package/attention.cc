// Hedgerow from C++: softmax attention against torch's own, Hedgehog attention in one call and
// piece by piece, and a gradient. Prints what it measured; exit status 1 when a figure is wrong.
#include <ATen/ATen.h>

#include <cstdio>

#include "hedgerow/ops.h"
#include "hedgerow/version.h"

namespace {

bool report(const char* what, const at::Tensor& got, const at::Tensor& expected, double tolerance) {
  const double error = (got - expected).abs().max().item<double>();
  const bool fine = error <= tolerance;
  std::printf("%-44s largest difference %.1e  %s\n", what, error, fine ? "ok" : "WRONG");
  return fine;
}

}  // namespace

int main() {
  std::printf("Hedgerow %s\n", hedgerow::version());
  at::manual_seed(0);
  const int64_t B = 1, H = 4, T = 128, D = 32;
  const at::Tensor q = at::randn({B, H, T, D}), k = at::randn({B, H, T, D});
  const at::Tensor v = at::randn({B, H, T, D});
  bool fine = true;

  fine &= report("softmax attention against torch", hedgerow::ops::softmax_attention(q, k, v),
                 at::scaled_dot_product_attention(q, k, v), 1e-5);

  // Maps that start as the identity: weight [H, D, E].
  const at::Tensor w = at::eye(D).expand({H, D, D}).contiguous();
  const at::Tensor whole = hedgerow::ops::hedgehog_attention(q, k, v, w, w, {}, {}, "exp", {},
                                                             /*is_causal=*/true);
  const int64_t half = T / 2;
  const auto [first, s, z, m] = hedgerow::ops::hedgehog_attention_state(
      q.narrow(2, 0, half), k.narrow(2, 0, half), v.narrow(2, 0, half), w, w);
  const auto [second, s2, z2, m2] = hedgerow::ops::hedgehog_attention_state(
      q.narrow(2, half, half), k.narrow(2, half, half), v.narrow(2, half, half), w, w, {}, {},
      "exp", {}, s, z, m);
  fine &= report("Hedgehog attention, two pieces against one", at::cat({first, second}, 2), whole,
                 1e-5);

  // Every query's weights sum to one, so that the gradient of sum(out) by v sums to the queries.
  const at::Tensor leaf = v.detach().clone().requires_grad_(true);
  hedgerow::ops::hedgehog_attention(q, k, leaf, w, w).sum().backward();
  fine &=
      report("gradient by the values", leaf.grad().sum(2), at::full({B, H, D}, double(T)), 1e-2);
  return fine ? 0 : 1;
}
