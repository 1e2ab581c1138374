// Projections, masks, options, low-rank updates: what stands around a mixer.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "hedgerow/error.h"
#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/precision.h"

namespace hedgerow::nn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void randomise(torch::nn::Module& module, double scale = 0.3) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& p : module.parameters()) p.normal_(0, scale);
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

const std::vector<OptionSpec> kSpecs = {{"map", std::string("exp"), "", {"exp", "elu"}},
                                        {"width", int64_t{0}, "", {}},
                                        {"rate", 0.5, "", {}},
                                        {"bias", false, "", {}}};

TEST(Options, DefaultsAndGivenValues) {
  const Options options("kind", kSpecs, {{"map", std::string("elu")}, {"rate", int64_t{2}}});
  EXPECT_EQ(options.get_string("map"), "elu");
  EXPECT_EQ(options.get_int("width"), 0);
  EXPECT_EQ(options.get_double("rate"), 2.0);  // a whole number does for a number
  EXPECT_FALSE(options.get_bool("bias"));
}

TEST(Options, ErrorsNameOptionRuleAndValue) {
  const auto make = [](const std::string& name, OptionValue value) {
    return error_of([&] { Options("kind", kSpecs, {{name, value}}); });
  };
  EXPECT_EQ(make("mop", int64_t{1}), "kind: unknown option \"mop\"; it has map, width, rate, bias");
  EXPECT_EQ(make("map", std::string("tanh")),
            "kind: option \"map\" must be one of exp, elu; got \"tanh\"");
  EXPECT_EQ(make("width", 0.5), "kind: option \"width\" must be an integer; got 0.5");
  EXPECT_EQ(make("bias", int64_t{1}), "kind: option \"bias\" must be true or false; got 1");
}

TEST(AttentionMask, CombinesPaddingWithEitherKindOfMask) {
  AttentionMask mask;
  EXPECT_FALSE(mask.combined());
  mask.key_mask = at::tensor({1, 1, 0}, at::kInt).to(at::kBool).view({1, 3});
  EXPECT_TRUE(at::equal(*mask.combined(), mask.key_mask->view({1, 1, 1, 3})));
  mask.attn_mask = at::tensor({1, 0, 1, 0, 1, 1}, at::kInt).to(at::kBool).view({2, 3});
  const at::Tensor both = at::tensor({1, 0, 0, 0, 1, 0}, at::kInt).to(at::kBool).view({1, 1, 2, 3});
  EXPECT_TRUE(at::equal(*mask.combined(), both));
  mask.attn_mask = at::tensor({0.5, -kInfinity, 2.0}).view({1, 3});
  const at::Tensor sum = *mask.combined();
  EXPECT_EQ(sum.flatten()[0].item<double>(), 0.5);
  EXPECT_EQ(sum.flatten()[2].item<double>(), -kInfinity);
}

TEST(AttentionMask, CausalityIsAlignedAtTheEnd) {
  AttentionMask mask;
  mask.is_causal = true;
  const at::Tensor visible = *mask.visible(2, 4);
  EXPECT_TRUE(
      at::equal(visible.to(at::kInt), at::tensor({1, 1, 1, 0, 1, 1, 1, 1}, at::kInt).view({2, 4})));
  const at::Tensor blind = *mask.visible(3, 1);  // the first two queries come before all keys
  EXPECT_TRUE(at::equal(blind.to(at::kInt), at::tensor({0, 0, 1}, at::kInt).view({3, 1})));
}

TEST(Linear, LowRankUpdateStartsAtNothingAndMerges) {
  at::manual_seed(1);
  Linear linear(6, 5, true);
  randomise(linear);
  const at::Tensor x = at::randn({3, 6});
  const at::Tensor before = linear.forward(x).detach();
  linear.add_lora(2, 4.0);
  EXPECT_TRUE(at::equal(linear.forward(x), before));
  EXPECT_FALSE(linear.weight.requires_grad());
  EXPECT_FALSE(linear.bias.requires_grad());
  ASSERT_EQ(linear.parameters().size(), 4u);
  {
    const at::NoGradGuard no_grad;
    for (auto& item : linear.named_parameters()) {
      if (item.key().rfind("lora_", 0) == 0) item.value().normal_();
    }
  }
  const at::Tensor updated = linear.forward(x);
  EXPECT_FALSE(at::allclose(updated, before));
  EXPECT_TRUE(updated.requires_grad());
  linear.merge_lora();
  EXPECT_EQ(linear.parameters().size(), 2u);
  EXPECT_TRUE(linear.weight.requires_grad());
  EXPECT_TRUE(at::allclose(linear.forward(x), updated, 1e-5, 1e-5));
  EXPECT_NE(error_of([&] { linear.add_lora(0, 1.0); }).find("rank"), std::string::npos);
}

TEST(Linear, MultipliesInBfloat16OnRequest) {
  at::manual_seed(2);
  Linear linear(64, 48, true);
  randomise(linear);
  const at::Tensor x = at::randn({5, 64}).requires_grad_(true);
  const at::Tensor exact = linear.forward(x).detach();
  at::Tensor y;
  {
    const LinearInBfloat16 narrow;
    const LinearInBfloat16 inner(false);  // does not end what the outer one began
    y = linear.forward(x);
  }
  EXPECT_FALSE(LinearInBfloat16::enabled());
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  EXPECT_FALSE(at::equal(y, exact));
  // rounding of 64 products of two rounded factors and of their sum
  const double size = exact.abs().max().item<double>();
  EXPECT_LT((y - exact).abs().max().item<double>(), 0x1p-8 * 4 * size);
  y.sum().backward();
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(linear.weight.grad().scalar_type(), at::kFloat);
  const at::Tensor want = linear.weight.detach().sum(0).expand({5, 64});
  EXPECT_TRUE(at::allclose(x.grad(), want, 0x1p-6, 0x1p-6 * want.abs().max().item<double>()));
}

// Attention by its formula, from the layer's own weights.
at::Tensor by_formula(Attention& a, const at::Tensor& x, const at::Tensor& m) {
  const HeadLayout& h = a.shape().layout;
  const auto heads = [](const at::Tensor& y, int64_t count) {
    return y.view({y.size(0), y.size(1), count, -1}).transpose(1, 2);
  };
  const int64_t group = h.key_heads / h.kv_heads;
  const at::Tensor q = heads(a.query().forward(x), h.key_heads);
  const at::Tensor k = heads(a.key().forward(m), h.kv_heads).repeat_interleave(group, 1);
  const at::Tensor v = heads(a.value().forward(m), h.kv_heads).repeat_interleave(group, 1);
  const at::Tensor weights =
      (at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(h.head_dim))).softmax(-1);
  return a.output().forward(at::matmul(weights, v).transpose(1, 2).flatten(2));
}

TEST(Attention, EqualsTheFormulaWithGroupsAndMemoryOfAnotherWidth) {
  at::manual_seed(2);
  for (const int64_t kv_heads : {1, 2, 4}) {
    const HeadLayout layout = HeadLayout::multi_head(4, 3, kv_heads);
    Attention attention({10, 7, layout, true}, make_mixer("softmax", layout));
    randomise(attention);
    attention.to(at::kDouble);
    const at::Tensor x = at::randn({2, 5, 10}, at::kDouble), m = at::randn({2, 9, 7}, at::kDouble);
    const at::Tensor y = attention.forward(x, m, {});
    EXPECT_TRUE(at::allclose(y, by_formula(attention, x, m), 1e-10, 1e-10)) << kv_heads;
  }
}

TEST(Attention, ObserverSeesTheProjectedHeads) {
  const HeadLayout layout = HeadLayout::multi_head(2, 3, 1);
  Attention attention({6, 6, layout, false}, make_mixer("softmax", layout));
  randomise(attention);
  AttentionTrace seen;
  attention.set_observer([&](const AttentionTrace& trace) { seen = trace; });
  const at::Tensor x = at::randn({2, 5, 6});
  AttentionMask mask;
  mask.key_mask = at::ones({2, 5}, at::kBool);
  attention.forward(x, x, mask);
  EXPECT_EQ(seen.q.sizes(), at::IntArrayRef({2, 2, 5, 3}));
  EXPECT_EQ(seen.k.sizes(), at::IntArrayRef({2, 1, 5, 3}));
  EXPECT_EQ(seen.v.sizes(), at::IntArrayRef({2, 1, 5, 3}));
  EXPECT_TRUE(at::equal(*seen.mask.key_mask, *mask.key_mask));
  EXPECT_TRUE(at::equal(seen.q.transpose(1, 2).flatten(2), attention.query().forward(x)));
}

TEST(Attention, SwapsMixersOfItsOwnHeadsOnly) {
  const HeadLayout layout = HeadLayout::multi_head(2, 3);
  Attention attention({6, 6, layout, true}, make_mixer("softmax", layout));
  const size_t before = attention.parameters().size();
  attention.set_mixer(make_mixer("hedgehog", layout));
  EXPECT_EQ(attention.parameters().size(), before + 2);
  EXPECT_TRUE(attention.named_parameters().contains("hedgerow.wq"));
  attention.set_mixer(make_mixer("softmax", layout));
  EXPECT_EQ(attention.parameters().size(), before);
  const auto other = make_mixer("softmax", HeadLayout::multi_head(3, 2));
  EXPECT_NE(error_of([&] { attention.set_mixer(other); }).find("heads"), std::string::npos);
}

// A mixer that asks for chosen positions only.
class PickingMixer : public Mixer {
 public:
  explicit PickingMixer(const HeadLayout& layout) : layout_(layout) {}
  std::string kind() const override { return "picking"; }
  const Options& options() const override { return options_; }
  const HeadLayout& layout() const override { return layout_; }
  at::Tensor mix(const MixInput& in) override {
    const at::Tensor positions = at::tensor({3, 1}, at::kLong);
    chosen = in.project.keys(positions);
    all = in.project.keys();
    again = in.project.keys(positions);
    return in.project.queries();
  }
  at::Tensor weights(const MixInput&) override { return {}; }
  at::Tensor log_weights(const MixInput&) override { return {}; }
  at::Tensor chosen, all, again;

 private:
  HeadLayout layout_;
  Options options_;
};

TEST(Attention, ProjectsChosenPositions) {
  const HeadLayout layout = HeadLayout::multi_head(2, 3);
  const auto mixer = std::make_shared<PickingMixer>(layout);
  Attention attention({6, 6, layout, true}, mixer);
  randomise(attention);
  const at::Tensor x = at::randn({2, 5, 6});
  attention.forward(x, x, {});
  EXPECT_TRUE(
      at::allclose(mixer->chosen, mixer->all.index_select(2, at::tensor({3, 1}, at::kLong))));
  EXPECT_TRUE(at::allclose(mixer->chosen, mixer->again));
}

TEST(LayerNormAndEmbedding, EqualTheirFormulas) {
  LayerNorm norm(8, 1e-3);
  randomise(norm);
  const at::Tensor x = at::randn({3, 8});
  const at::Tensor centred = x - x.mean(-1, true);
  const at::Tensor expected =
      centred / (centred.square().mean(-1, true) + 1e-3).sqrt() * norm.weight + norm.bias;
  EXPECT_TRUE(at::allclose(norm.forward(x), expected, 1e-5, 1e-5));
  Embedding table(5, 2);
  randomise(table);
  const at::Tensor rows = table.forward(at::tensor({4, 0, 4}, at::kLong));
  EXPECT_TRUE(at::equal(rows[0], table.weight[4]));
  EXPECT_TRUE(at::equal(rows[1], table.weight[0]));
}

}  // namespace
}  // namespace hedgerow::nn
