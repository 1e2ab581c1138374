#include "analysis/head_grams.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "analysis/observe.h"

namespace hedgerow::analysis {
namespace {

models::EncoderConfig tiny_config() {
  models::EncoderConfig c;
  c.architecture = "bert";
  c.vocab_size = 30;
  c.hidden_size = 12;
  c.num_layers = 2;
  c.num_heads = 3;
  c.intermediate_size = 16;
  c.max_positions = 16;
  c.type_vocab_size = 2;
  return c;
}

// By their definitions, query by query.
TEST(HeadGrams, AreWhatTheySay) {
  at::manual_seed(4);
  models::Encoder model(tiny_config());
  const at::NoGradGuard no_grad;
  for (at::Tensor& p : model.parameters()) p.normal_(0, 0.5);
  models::EncoderInput input;
  input.input_ids = at::randint(0, 30, {2, 7}, at::kLong);
  nn::AttentionTrace trace;
  {
    const ObserveLayers observe(model, [&](int64_t layer, const nn::AttentionTrace& t) {
      if (layer == 1) trace = t;
    });
    model.forward(input);
  }
  const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
  const at::Tensor q = wide(trace.q), k = wide(trace.k), v = wide(trace.v);
  const at::Tensor wo = wide(model.attention(1).output().weight).t().view({3, 4, 12});
  nn::HeadGrams want{at::zeros({3, 3, 3}, at::kDouble), at::zeros({3, 3, 3}, at::kDouble),
                     at::zeros({3, 3}, at::kDouble)};
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t t = 0; t < 7; ++t) {
      const at::Tensor j = at::matmul(k[b], q[b].select(1, t).unsqueeze(-1)).squeeze(-1) / 2;
      const at::Tensor p = j.softmax(-1);                             // [3,7]
      const at::Tensor values = at::matmul(v[b], wo);                 // [3,7,12]
      const at::Tensor out = at::einsum("hs,asd->had", {p, values});  // [3,3,12]
      for (int64_t h = 0; h < 3; ++h) {
        const at::Tensor w = (p[h] + 1.0 / 7) / 2;
        const at::Tensor d = j - (j * w).sum(-1, true);
        want.logits[h] += at::matmul(d * w, d.t());
        want.outputs[h] += at::matmul(out[h], out[h].t());
      }
      const at::Tensor own = out.diagonal().t();
      want.contributions += at::matmul(own, own.t());
    }
  }
  const auto got = head_grams(model, {1}, {input});
  ASSERT_EQ(got.size(), 1u);
  EXPECT_TRUE(at::allclose(got[0].logits, want.logits, 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(got[0].outputs, want.outputs, 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(got[0].contributions, want.contributions, 1e-4, 1e-5));
}

}  // namespace
}  // namespace hedgerow::analysis
