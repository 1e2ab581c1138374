// What is particular to the entmax mixer; mixers_test.cc checks what it shares with the others.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "hedgerow/error.h"
#include "hedgerow/ops.h"
#include "nn/attention.h"
#include "nn/mixer.h"

namespace hedgerow::nn {
namespace {

using Given = std::map<std::string, OptionValue>;

struct Heads {
  at::Tensor q = at::randn({2, 4, 6, 5}, at::kDouble), k = at::randn({2, 2, 9, 5}, at::kDouble),
             v = at::randn({2, 2, 9, 5}, at::kDouble);
  FixedProjector project{q, k, v};
};

std::shared_ptr<Mixer> make(const Given& options) {
  auto mixer = make_mixer("entmax", HeadLayout::multi_head(4, 5, 2), options);
  mixer->to(at::kDouble);
  return mixer;
}

at::Tensor alpha_of(Mixer& mixer) { return mixer.named_parameters()["alpha_raw"].sigmoid() + 1; }

TEST(EntmaxMixer, AlphasStartWhereAsked) {
  EXPECT_TRUE(at::allclose(alpha_of(*make({})), at::full({4}, 1.02, at::kDouble)));
  EXPECT_TRUE(at::allclose(alpha_of(*make({{"start", std::string("spread")}})),
                           at::tensor({1.2, 1.4, 1.6, 1.8}, at::kDouble), 0, 1e-6));
  EXPECT_TRUE(at::allclose(
      alpha_of(*make({{"start", std::string("1.75")}, {"share", std::string("layer")}})),
      at::full({1}, 1.75, at::kDouble)));
  EXPECT_TRUE(make({{"alpha", std::string("1.5")}})->parameters().empty());
}

TEST(EntmaxMixer, TellsItsAlphasByHead) {
  const auto spread =
      make({{"start", std::string("spread")}, {"length_scale", true}})->head_values();
  ASSERT_EQ(spread.size(), 4u);
  EXPECT_EQ(spread[0].first, "alpha");
  EXPECT_TRUE(
      at::allclose(spread[0].second, at::tensor({1.2, 1.4, 1.6, 1.8}, at::kDouble), 0, 1e-6));
  for (const Given& options :
       std::vector<Given>{{{"alpha", std::string("1.5")}},
                          {{"start", std::string("1.5")}, {"share", std::string("layer")}}}) {
    const auto same = make(options)->head_values();
    EXPECT_TRUE(at::allclose(same[0].second, at::full({4}, 1.5, at::kDouble), 0, 1e-6));
  }
}

TEST(EntmaxMixer, AppliesEachHeadsAlpha) {
  const Heads h;
  const auto spread = make({{"start", std::string("spread")}});
  EXPECT_TRUE(at::allclose(spread->mix({{}, {}, h.project, {}}),
                           ops::entmax_attention(h.q, h.k, h.v, alpha_of(*spread))));
  const auto fixed = make({{"alpha", std::string("1.5")}});
  EXPECT_TRUE(at::allclose(fixed->mix({{}, {}, h.project, {}}),
                           ops::entmax_attention(h.q, h.k, h.v, at::full({}, 1.5, at::kDouble))));
  // alpha = 1 is softmax
  const auto softmax = make_mixer("softmax", HeadLayout::multi_head(4, 5, 2));
  EXPECT_TRUE(at::allclose(make({{"alpha", std::string("1")}})->weights({{}, {}, h.project, {}}),
                           softmax->weights({{}, {}, h.project, {}})));
}

TEST(EntmaxMixer, AlphasLearn) {
  const Heads h;
  const auto mixer = make({{"share", std::string("layer")}, {"length_scale", true}});
  mixer->mix({{}, {}, h.project, {}}).square().sum().backward();
  for (const char* name : {"alpha_raw", "scale_delta", "scale_beta"}) {
    const at::Tensor gradient = mixer->named_parameters()[name].grad();
    ASSERT_TRUE(gradient.defined()) << name;
    EXPECT_EQ(gradient.sizes(), at::IntArrayRef({1}));
    EXPECT_NE(gradient.item<double>(), 0) << name;
  }
}

TEST(EntmaxMixer, StartsNextToSoftmax) {
  at::manual_seed(2);
  const Heads h;
  const auto softmax = make_mixer("softmax", HeadLayout::multi_head(4, 5, 2));
  const at::Tensor theirs = softmax->weights({{}, {}, h.project, {}});
  const at::Tensor ours = make({})->weights({{}, {}, h.project, {}});
  EXPECT_LT((ours - theirs).abs().max().item<double>(), 0.03);
  EXPECT_GT((ours - theirs).abs().max().item<double>(), 0);
}

TEST(EntmaxMixer, LengthScaleCountsVisibleKeys) {
  const Heads h;
  const auto mixer = make({{"alpha", std::string("1.5")}, {"length_scale", true}});
  AttentionMask mask;
  mask.is_causal = true;  // query t of 6 sees t + 4 of 9 keys
  mask.key_mask = at::ones({2, 9}, at::kBool);
  mask.key_mask->select(0, 1).narrow(0, 0, 2).fill_(false);
  const at::Tensor unscaled = mixer->weights({{}, {}, h.project, mask});
  {
    const at::NoGradGuard no_grad;
    auto parameters = mixer->named_parameters();
    parameters["scale_delta"].copy_(at::tensor({1.0, 0.5, 0.0, 2.0}));
    parameters["scale_beta"].copy_(at::tensor({0.0, 0.3, 1.0, -0.2}));
    parameters["scale_gamma"].copy_(at::tensor({1.0, 2.0, 0.5, 1.5}));
  }
  const at::Tensor got = mixer->weights({{}, {}, h.project, mask});
  EXPECT_TRUE(at::equal(got.select(1, 0), unscaled.select(1, 0)));
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t t = 0; t < 6; ++t) {
      const int64_t n = t + 4 - 2 * b, first = 2 * b;  // keys [first, first + n)
      const double scale = 0.5 + 0.3 * std::pow(std::log(static_cast<double>(n)), 2.0);
      const at::Tensor scores = at::mv(h.k[b][0].narrow(0, first, n), h.q[b][1][t]);
      const at::Tensor row =
          ops::entmax(scores * (scale / std::sqrt(5.0)), at::full({}, 1.5, at::kDouble));
      EXPECT_TRUE(at::allclose(got[b][1][t].narrow(0, first, n), row)) << b << " " << t;
    }
  }
}

TEST(EntmaxMixer, RefusesWhatIsNoAlpha) {
  for (const char* alpha : {"0.9", "nan", "inf", "softmax", "1.5x", ""})
    EXPECT_THROW(make({{"alpha", std::string(alpha)}}), Error) << alpha;
  for (const char* start : {"1", "2", "0.5", "nan", "even"})
    EXPECT_THROW(make({{"start", std::string(start)}}), Error) << start;
  EXPECT_THROW(make({{"share", std::string("model")}}), Error);
}

TEST(EntmaxMixer, SwapsIntoAttention) {
  AttentionShape shape;
  shape.model_dim = shape.memory_dim = 12;
  shape.layout = HeadLayout::multi_head(4, 3);
  Attention attention(shape, make_mixer("softmax", shape.layout));
  attention.to(at::kDouble);
  const at::Tensor x = at::randn({2, 7, 12}, at::kDouble);
  const at::Tensor before = attention.forward(x, x, {});
  auto close = make_mixer("entmax", shape.layout, {{"start", std::string("1.0001")}});
  close->to(at::kDouble);
  attention.set_mixer(close);
  EXPECT_TRUE(at::allclose(attention.forward(x, x, {}), before, 1e-3, 1e-3));
  EXPECT_TRUE(attention.named_parameters().contains("hedgerow.alpha_raw"));
}

}  // namespace
}  // namespace hedgerow::nn
