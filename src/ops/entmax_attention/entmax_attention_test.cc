#include "ops/entmax_attention/entmax_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "hedgerow/kernels/entmax_attention.h"
#include "hedgerow/ops.h"
#include "testing/tensor_expect.h"

namespace hedgerow::ops {
namespace {

using testing_support::expect_close;
using testing_support::expect_refused;
using EntmaxAttention = testing_support::SeededTest;

at::Tensor scalar(double value) { return at::full({}, value, at::kDouble); }

struct Inputs {
  explicit Inputs(int64_t keys = 130, at::ScalarType dtype = at::kFloat)
      : q(at::randn({2, 4, 50, 16}, dtype).requires_grad_(true)),
        k(at::randn({2, 2, keys, 16}, dtype).requires_grad_(true)),
        v(at::randn({2, 2, keys, 8}, dtype).requires_grad_(true)),
        alpha(at::tensor({1.0f, 1.2f, 1.5f, 1.9f}).requires_grad_(true)) {}
  at::Tensor q, k, v, alpha;
  std::vector<at::Tensor> all() const { return {q, k, v, alpha}; }
};

TEST_F(EntmaxAttention, IsEntmaxOfScoresTimesValues) {
  for (const bool causal : {false, true}) {
    const Inputs in(70, at::kDouble);
    const at::Tensor keys = in.k.repeat_interleave(2, 1), values = in.v.repeat_interleave(2, 1);
    at::Tensor scores = at::matmul(in.q, keys.transpose(2, 3)) / 4;
    at::Tensor keep = at::ones({50, 70}, at::kBool);
    if (causal) keep = keep.tril(20);
    const at::Tensor p = entmax(scores, in.alpha.view({1, 4, 1, 1}), -1, keep);
    const at::Tensor want = at::matmul(p, values);
    const at::Tensor got = entmax_attention(in.q, in.k, in.v, in.alpha, {}, causal);
    expect_close(got, want, 1e-10);
    const at::Tensor g = at::randn_like(got);
    const auto a = torch::autograd::grad({(got * g).sum()}, in.all());
    const auto b = torch::autograd::grad({(want * g).sum()}, in.all());
    for (size_t i = 0; i < 4; i++) expect_close(a[i], b[i], 1e-4);  // alpha is float32
    for (size_t i = 0; i < 3; i++) expect_close(a[i], b[i], 1e-9);
  }
}

TEST_F(EntmaxAttention, SoftmaxAtOne) {
  const Inputs in;
  expect_close(entmax_attention(in.q, in.k, in.v, scalar(1)), softmax_attention(in.q, in.k, in.v),
               1e-5);
}

TEST_F(EntmaxAttention, AlphasGradientHasAlphasShapeAndType) {
  const Inputs in(20);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor one = at::full({}, 1.5, dtype).requires_grad_(true);
    const at::Tensor each = at::full({4}, 1.5, dtype).requires_grad_(true);
    entmax_attention(in.q, in.k, in.v, one).square().sum().backward();
    entmax_attention(in.q, in.k, in.v, each).square().sum().backward();
    ASSERT_EQ(one.grad().scalar_type(), dtype);
    ASSERT_EQ(each.grad().sizes(), at::IntArrayRef({4}));
    const double total = each.grad().to(at::kDouble).sum().item<double>();
    EXPECT_NEAR(one.grad().item<double>(), total, 0.02 * std::fabs(total));
  }
}

TEST_F(EntmaxAttention, MaskGradientHasTheMasksShape) {
  const Inputs in(50);
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {50}, {50, 1}, {4, 1, 50}, {1, 4, 50, 50}, {2, 1, 1, 50}}) {
    at::Tensor bias = at::randn(shape);
    bias.view(-1)[0] = -INFINITY;
    const at::Tensor own = bias.clone().requires_grad_(true);
    const at::Tensor wide = bias.expand({2, 4, 50, 50}).clone().requires_grad_(true);
    entmax_attention(in.q, in.k, in.v, in.alpha, own).square().sum().backward();
    entmax_attention(in.q, in.k, in.v, in.alpha, wide).square().sum().backward();
    expect_close(own.grad(), wide.grad().sum_to_size(shape), 1e-4);
    EXPECT_EQ(own.grad().view(-1)[0].item<float>(), 0.0f);
  }
}

// Kept and recomputed rows, and what the composite form keeps, give one gradient.
TEST_F(EntmaxAttention, EveryForwardServesEveryBackward) {
  for (const int64_t keys : {40, 300}) {  // supports within the capacity, and beyond it
    const Inputs in(keys);
    const auto gradients = [&](Path forward, Path backward) {
      set_path(forward);
      const auto [out, stats, index, weight] =
          entmax_attention_forward(in.q, in.k, in.v, in.alpha, {}, true, {}, 0.0, {});
      set_path(backward);
      const at::Tensor g = at::linspace(-1, 1, out.numel()).view(out.sizes());
      const at::NoGradGuard no_grad;
      const auto grads = entmax_attention_backward(g, in.q, in.k, in.v, in.alpha, stats, index,
                                                   weight, {}, true, {}, 0.0, {}, true, false);
      set_path(Path::automatic);
      return std::vector<at::Tensor>{std::get<0>(grads), std::get<1>(grads), std::get<2>(grads),
                                     std::get<3>(grads)};
    };
    const auto want = gradients(Path::composite_only, Path::composite_only);
    for (const auto& [forward, backward] : {std::pair{Path::automatic, Path::automatic},
                                            {Path::composite_only, Path::automatic},
                                            {Path::automatic, Path::composite_only}}) {
      const auto got = gradients(forward, backward);
      for (size_t i = 0; i < want.size(); i++)
        expect_close(got[i], want[i], 2e-4 * std::max(1.0, want[i].abs().max().item<double>()));
    }
  }
}

TEST_F(EntmaxAttention, CapacityFollowsFromTheNumberOfKeys) {
  for (const int64_t keys : {0, 1, 50, 97, 98, 99, 100, 101, 1000, 65535, 65536, 65537, 1 << 20}) {
    EXPECT_EQ(support_capacity(keys).expect_int(), kernels::entmax_support_capacity(keys)) << keys;
    const int64_t bytes = support_index_dtype(keys) == at::kShort ? 2 : 4;
    EXPECT_EQ(bytes, kernels::entmax_support_index_bytes(keys)) << keys;
  }
}

TEST_F(EntmaxAttention, WrongArgumentsAreNamed) {
  const Inputs in(5);
  const auto with = [&](const at::Tensor& alpha) {
    return [&in, alpha] { entmax_attention(in.q.detach(), in.k.detach(), in.v.detach(), alpha); };
  };
  expect_refused(with(scalar(0.5)), "entmax_attention", {"alpha", "0.5"});
  expect_refused(with(at::tensor({1.0, 1.5, NAN, 2.0})), "entmax_attention", {"alpha", "nan"});
  expect_refused(with(at::ones({3})), "entmax_attention", {"alpha", "[H] = [4]", "[3]"});
  expect_refused(with(at::ones({1, 4, 1, 1})), "entmax_attention", {"alpha", "[1, 4, 1, 1]"});
  expect_refused(with(at::ones({4}, at::kInt)), "entmax_attention", {"alpha", "int32"});
  expect_refused([&] { entmax_attention(in.q, in.k, in.v, scalar(INFINITY)); }, "entmax_attention",
                 {"alpha", "inf"});
}

}  // namespace
}  // namespace hedgerow::ops
