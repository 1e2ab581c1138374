#include "ops/attention_weights/attention_weights.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "hedgerow/ops.h"
#include "testing/tensor_expect.h"

namespace hedgerow::ops {
namespace {

using testing_support::expect_close;
using testing_support::expect_refused;
using AttentionWeights = testing_support::SeededTest;

TEST_F(AttentionWeights, RowsAreDistributionsOrZero) {
  const at::Tensor q = at::randn({2, 4, 6, 3}), k = at::randn({2, 2, 4, 3});
  const at::Tensor wq = at::randn({4, 3, 2}), wk = at::randn({2, 3, 2});
  const at::Tensor rows =
      at::cat({at::zeros({2, 4, 2}), at::ones({2, 4, 4})}, -1);  // T - S queries see nothing
  expect_close(softmax_attention_weights(q, k, {}, true).sum(-1), rows, 1e-5);
  const at::Tensor alpha = at::tensor({1.0, 1.3, 2.0, 4.0});  // one per head
  expect_close(entmax_attention_weights(q, k, alpha, {}, true).sum(-1), rows, 1e-5);
  for (const char* variant : {"exp", "softmax", "elu"}) {
    const at::Tensor w = hedgehog_attention_weights(q, k, wq, wk, {}, {}, variant, {}, true);
    expect_close(w.sum(-1), rows, 1e-5);
    EXPECT_EQ(w.triu(4 - 6 + 1).abs().max().item<float>(), 0.0f);
  }
}

TEST_F(AttentionWeights, GiveTheirAttention) {
  const at::Tensor q = at::randn({2, 4, 40, 3}, at::kDouble),
                   k = at::randn({2, 2, 50, 3}, at::kDouble),
                   v = at::randn({2, 2, 50, 5}, at::kDouble);
  const at::Tensor wq = at::randn({4, 3, 2}, at::kDouble), wk = at::randn({2, 3, 2}, at::kDouble),
                   values = v.repeat_interleave(2, 1), mask = at::rand({2, 50}) > 0.3;
  for (const bool causal : {false, true}) {
    for (const char* variant : {"exp", "softmax_joint", "relu", "performer"})
      expect_close(
          at::matmul(hedgehog_attention_weights(q, k, wq, wk, {}, {}, variant, mask, causal),
                     values),
          hedgehog_attention(q, k, v, wq, wk, {}, {}, variant, mask, causal), 1e-10);
    const at::Tensor keep = mask.view({2, 1, 1, 50});
    expect_close(at::matmul(softmax_attention_weights(q, k, keep, causal), values),
                 softmax_attention(q, k, v, keep, causal), 1e-10);
    const at::Tensor alpha = at::tensor({1.0, 1.3, 2.0, 4.0});
    expect_close(at::matmul(entmax_attention_weights(q, k, alpha, keep, causal), values),
                 entmax_attention(q, k, v, alpha, keep, causal), 1e-10);
  }
}

TEST_F(AttentionWeights, TalkingHeadsGiveTheirAttention) {
  const auto random = [](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); };
  const at::Tensor q = random({2, 4, 40, 3}), k = random({2, 2, 50, 3}), v = random({2, 6, 50, 5});
  const at::Tensor keep = at::rand({2, 1, 1, 50}) > 0.3;
  for (const bool causal : {false, true}) {
    const TalkingHeadsOptions options{.logits_proj = random({4, 3}),
                                      .weights_proj = random({3, 6}),
                                      .attn_mask = keep,
                                      .is_causal = causal,
                                      .x_logits = random({2, 40, 4, 3}),
                                      .m_weights = random({2, 50, 3, 6})};
    const at::Tensor u = talking_heads_attention_weights(q, k, options);
    ASSERT_EQ(u.sizes(), at::IntArrayRef({2, 6, 40, 50}));
    expect_close(at::matmul(u, v), talking_heads_attention(q, k, v, options), 1e-10);
  }
}

TEST_F(AttentionWeights, AKindRefusesWhatItDoesNotTake) {
  const at::Tensor x = at::ones({1, 1, 2, 3}), mask = at::ones({2, 2}, at::kBool),
                   one = at::ones({1, 1});
  const auto expect = [&](const WeightsInputs& in, const char* name) {
    expect_refused([&] { attention_weights(in); }, "attention_weights",
                   {"\"" + in.kind + "\" does not take " + name});
  };
  expect({.kind = "hedgehog", .q = x, .k = x, .attn_mask = mask}, "attn_mask");
  expect({.kind = "softmax", .q = x, .k = x, .alpha = one}, "alpha");
  expect({.kind = "entmax", .q = x, .k = x, .alpha = one, .weights_proj = one}, "weights_proj");
  expect({.kind = "talking_heads", .q = x, .k = x, .wq = one}, "wq");
  expect({.kind = "softmax", .q = x, .k = x, .mean = one}, "mean");
  expect({.kind = "partial", .q = x, .k = x, .logits_proj = one}, "logits_proj");
  expect_refused([&] { attention_weights({.kind = "partial", .q = x, .k = x, .positions = one}); },
                 "attention_weights", {"needs positions and reconstruction", "got positions"});
}

}  // namespace
}  // namespace hedgerow::ops
