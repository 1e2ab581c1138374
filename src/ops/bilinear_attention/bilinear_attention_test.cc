#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "hedgerow/ops.h"
#include "testing/tensor_expect.h"

namespace hedgerow::ops {
namespace {

using testing_support::expect_close;
using testing_support::expect_refused;
using BilinearAttention = testing_support::SeededTest;

at::Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

// Layers of B = 2 texts with T = 5 and S = 7 tokens of widths 6 and 4; outputs of width 3.
struct Layer {
  explicit Layer(int64_t key_heads, int64_t value_heads)
      : wq(random({key_heads, 6, 8})),
        wk(random({key_heads, 4, 8})),
        wv(random({value_heads, 4, 5})),
        wo(random({value_heads, 5, 3})) {}
  at::Tensor x = random({2, 5, 6}), m = random({2, 7, 4});
  at::Tensor wq, wk, wv, wo;

  // By projected heads.
  at::Tensor operator()(const TalkingHeadsOptions& options) const {
    const auto project = [](const at::Tensor& tokens, const at::Tensor& w) {
      return at::matmul(tokens.unsqueeze(1), w);
    };
    const at::Tensor out =
        talking_heads_attention(project(x, wq), project(m, wk), project(m, wv), options);
    return at::matmul(out, wo).sum(1);
  }
  // By bilinear attention.
  at::Tensor bilinear(const TalkingHeadsOptions& options) const {
    const auto [p, p_out] = bilinear_from_talking_heads(wq, wk, wv, wo, options.logits_proj,
                                                        options.weights_proj, options.scale);
    return bilinear_attention(x, m, p, p_out, options.attn_mask, options.is_causal, options.alpha);
  }
};

TEST_F(BilinearAttention, IsMultiHeadAttention) {
  const Layer layer(3, 3);
  expect_close(layer.bilinear({}), layer({}), 1e-12);
  const TalkingHeadsOptions options{
      .attn_mask = at::rand({3, 5, 7}) > 0.3, .is_causal = true, .scale = 0.7};
  expect_close(layer.bilinear(options), layer(options), 1e-12);
}

TEST_F(BilinearAttention, IsTalkingHeadsAttention) {
  const Layer layer(2, 4);
  TalkingHeadsOptions options{.logits_proj = random({2, 3}), .weights_proj = random({3, 4})};
  expect_close(layer.bilinear(options), layer(options), 1e-12);
  options.attn_mask = at::randn({3, 1, 7}, at::kDouble);
  options.alpha = at::tensor({1.0, 1.4, 2.0});
  expect_close(layer.bilinear(options), layer(options), 1e-12);
  const Layer logits_only(2, 3), weights_only(3, 4);
  expect_close(logits_only.bilinear({.logits_proj = options.logits_proj}),
               logits_only({.logits_proj = options.logits_proj}), 1e-12);
  expect_close(weights_only.bilinear({.weights_proj = options.weights_proj}),
               weights_only({.weights_proj = options.weights_proj}), 1e-12);
}

TEST_F(BilinearAttention, MaskedTokensAreNotRead) {
  const Layer layer(2, 2);
  const at::Tensor keep = at::ones({2, 1, 1, 7}, at::kBool);
  keep.narrow(3, 4, 3).fill_(false);
  const at::Tensor clean = layer.bilinear({.attn_mask = keep});
  layer.m.narrow(1, 4, 3).fill_(NAN);
  expect_close(layer.bilinear({.attn_mask = keep}), clean, 1e-15);
}

TEST_F(BilinearAttention, WrongArgumentsAreNamed) {
  const Layer layer(2, 3);
  expect_refused([&] { layer.bilinear({}); }, "bilinear_from_talking_heads", {"H", "2", "3"});
  expect_refused(
      [&] {
        layer.bilinear({.logits_proj = random({3, 3})});
      },
      "bilinear_from_talking_heads", {"logits_proj", "wq", "[3, 3]", "[2, 6, 8]"});
  const at::Tensor p = random({2, 6, 4}), p_out = random({2, 4, 3});
  expect_refused([&] { bilinear_attention(layer.x, layer.m, p_out, p_out); }, "bilinear_attention",
                 {"p ", "[2, 6, 4]", "[2, 4, 3]"});
  expect_refused([&] { bilinear_attention(layer.x, layer.m.narrow(0, 0, 1), p, p_out); },
                 "bilinear_attention", {"batch", "[2, 5, 6]", "[1, 7, 4]"});
}

}  // namespace
}  // namespace hedgerow::ops
