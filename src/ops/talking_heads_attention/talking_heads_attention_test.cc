#include "ops/talking_heads_attention/talking_heads_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "testing/tensor_expect.h"

namespace hedgerow::ops {
namespace {

using testing_support::expect_close;
using testing_support::expect_refused;
using TalkingHeads = testing_support::SeededTest;
using DynamicTalkingHeads = testing_support::SeededTest;

at::Tensor random(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  return at::randn(sizes, dtype).requires_grad_(true);
}

// Hk = 4 heads of q over 2 of k, H = 3, Hv = 6 over 2 heads of v.
struct Inputs {
  explicit Inputs(at::ScalarType dtype = at::kFloat)
      : q(random({2, 4, 20, 8}, dtype)),
        k(random({2, 2, 30, 8}, dtype)),
        v(random({2, 2, 30, 5}, dtype)),
        options{.logits_proj = random({4, 3}, dtype), .weights_proj = random({3, 6}, dtype)} {}
  at::Tensor q, k, v;
  TalkingHeadsOptions options;
};

TEST_F(TalkingHeads, WithoutProjectionsIsAttention) {
  const Inputs in;
  const at::Tensor keep = at::rand({4, 20, 30}) > 0.3, alpha = at::tensor({1.0, 1.2, 1.5, 1.9});
  expect_close(talking_heads_attention(in.q, in.k, in.v, {.attn_mask = keep, .is_causal = true}),
               softmax_attention(in.q, in.k, in.v, keep, true), 1e-5);
  expect_close(talking_heads_attention(in.q, in.k, in.v, {.scale = 0.5, .alpha = alpha}),
               entmax_attention(in.q, in.k, in.v, alpha, {}, false, 0.5), 1e-5);
}

TEST_F(TalkingHeads, ProjectionsCarryRowsIntoColumns) {
  const Inputs in;
  // softmax head 0 is key head 3; value head 1 is half of softmax head 0
  at::Tensor logits = at::zeros({4, 2}), weights = at::zeros({2, 2});
  logits[3][0] = 1;
  weights[0][1] = 0.5;
  const at::Tensor out =
      talking_heads_attention(in.q, in.k, in.v, {.logits_proj = logits, .weights_proj = weights});
  const at::Tensor head =
      softmax_attention(in.q.narrow(1, 3, 1), in.k.narrow(1, 1, 1), in.v.narrow(1, 1, 1));
  expect_close(out.narrow(1, 1, 1), head / 2, 1e-5);
  EXPECT_EQ(out.narrow(1, 0, 1).abs().max().item<float>(), 0.0f);
}

TEST_F(TalkingHeads, MaskGradientHasTheMasksShape) {
  Inputs in;
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {30}, {20, 1}, {3, 1, 30}, {1, 3, 20, 30}, {2, 1, 1, 30}, {1, 1}}) {
    at::Tensor bias = at::randn(shape);
    bias.view(-1)[0] = -INFINITY;
    const at::Tensor own = bias.clone().requires_grad_(true);
    const at::Tensor wide = bias.expand({2, 3, 20, 30}).clone().requires_grad_(true);
    for (const at::Tensor& mask : {own, wide}) {
      in.options.attn_mask = mask;
      talking_heads_attention(in.q, in.k, in.v, in.options).square().sum().backward();
    }
    expect_close(own.grad(), wide.grad().sum_to_size(shape), 1e-3);
    EXPECT_EQ(own.grad().view(-1)[0].item<float>(), 0.0f);
  }
}

TEST_F(TalkingHeads, GradientsHaveTheTypesOfTheirInputs) {
  const Inputs in(at::kBFloat16);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor logits = random({4, 3}, dtype), term = random({2, 30, 4, 3}, dtype),
                     alpha = at::full({}, 1.5, at::kHalf).requires_grad_(true);
    talking_heads_attention(
        in.q, in.k, in.v,
        {.logits_proj = logits, .weights_proj = random({3, 6}), .alpha = alpha, .m_logits = term})
        .square()
        .sum()
        .backward();
    EXPECT_EQ(logits.grad().scalar_type(), dtype);
    EXPECT_EQ(term.grad().scalar_type(), dtype);
    EXPECT_EQ(alpha.grad().scalar_type(), at::kHalf);
    EXPECT_GT(logits.grad().abs().max().item<float>(), 0);
  }
}

TEST_F(TalkingHeads, OnlyWantedGradientsAreGiven) {
  const Inputs in;
  const TalkingHeadsInputs all{in.options, in.q.detach(), in.k.detach(), in.v.detach()};
  const at::NoGradGuard no_grad;
  const at::Tensor grad = at::ones({2, 6, 20, 5});
  WantedGrads wanted = {};
  wanted[kWeightsProj] = true;
  for (const Path path : {Path::automatic, Path::composite_only}) {
    set_path(path);
    const TalkingHeadsGrads grads = talking_heads_attention_backward(all, grad, wanted);
    EXPECT_EQ(std::get<3 + kLogitsProj>(grads).numel(), 0);
    EXPECT_EQ(std::get<3 + kXLogits>(grads).numel(), 0);
    EXPECT_EQ(std::get<3 + kWeightsProj>(grads).sizes(), at::IntArrayRef({3, 6}));
    wanted[kXLogits] = true;
    expect_refused([&] { talking_heads_attention_backward(all, grad, wanted); },
                   "talking_heads_attention_backward", {"wanted[4]", "none"});
    wanted[kXLogits] = false;
  }
  set_path(Path::automatic);
}

TEST_F(TalkingHeads, NothingUnseenIsRead) {
  Inputs in;
  at::Tensor keep = at::ones({2, 3, 20, 30}, at::kBool);
  keep.narrow(3, 25, 5).fill_(false);  // keys that no head sees
  keep.narrow(2, 7, 1).fill_(false);   // a query that sees nothing
  in.options.attn_mask = keep;
  in.options.m_logits = random({2, 30, 4, 3});
  in.options.m_weights = random({2, 30, 3, 6});
  in.options.x_logits = random({2, 20, 4, 3});
  in.options.x_weights = random({2, 20, 3, 6});
  const auto run = [&] {
    std::vector<at::Tensor> inputs = {in.q,
                                      in.k,
                                      in.v,
                                      *in.options.logits_proj,
                                      *in.options.weights_proj,
                                      *in.options.m_logits,
                                      *in.options.x_weights};
    const at::Tensor out = talking_heads_attention(in.q, in.k, in.v, in.options);
    auto results = torch::autograd::grad({out.square().sum()}, inputs);
    results.push_back(out);
    return results;
  };
  const at::NoGradGuard no_grad;
  for (const Path path : {Path::automatic, Path::composite_only}) {
    set_path(path);
    std::vector<std::vector<at::Tensor>> seen;
    for (const double value : {0.0, static_cast<double>(NAN)}) {
      for (const at::Tensor& t : {in.k, in.v}) t.narrow(2, 25, 5).fill_(value);
      for (const at::Tensor& t : {*in.options.m_logits, *in.options.m_weights})
        t.narrow(1, 25, 5).fill_(value);
      in.q.narrow(2, 7, 1).fill_(value);
      for (const at::Tensor& t : {*in.options.x_logits, *in.options.x_weights})
        t.narrow(1, 7, 1).fill_(value);
      const at::AutoGradMode grad(true);
      seen.push_back(run());
    }
    for (size_t i = 0; i < seen[0].size(); i++) expect_close(seen[1][i], seen[0][i], 0);
    EXPECT_EQ(seen[1].back().narrow(2, 7, 1).abs().max().item<float>(), 0.0f);
  }
  set_path(Path::automatic);
}

TEST_F(DynamicTalkingHeads, TermsAreProjectionsOfTokens) {
  const Inputs in(at::kDouble);
  const auto dense = [](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); };
  const at::Tensor x = dense({2, 20, 7}), m = dense({2, 30, 5}), x2l = dense({7, 4, 3}),
                   m2l = dense({5, 4, 3}), x2w = dense({7, 3, 6}), m2w = dense({5, 3, 6});
  const auto project = [](const at::Tensor& tokens, const at::Tensor& w) {
    return at::tensordot(tokens, w, {2}, {0});
  };
  TalkingHeadsOptions options = in.options;
  options.x_logits = project(x, x2l);
  options.m_logits = project(m, m2l);
  options.x_weights = project(x, x2w);
  options.m_weights = project(m, m2w);
  const at::Tensor got = dynamic_talking_heads_attention(in.q, in.k, in.v,
                                                         {.logits_proj = options.logits_proj,
                                                          .weights_proj = options.weights_proj,
                                                          .x = x,
                                                          .m = m,
                                                          .x2l = x2l,
                                                          .m2l = m2l,
                                                          .x2w = x2w,
                                                          .m2w = m2w});
  expect_close(got, talking_heads_attention(in.q, in.k, in.v, options), 1e-10);
}

}  // namespace
}  // namespace hedgerow::ops
