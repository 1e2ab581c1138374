// Every mechanism of the registry, and what is particular to Hedgehog's maps.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

#include "hedgerow/error.h"
#include "nn/mixer.h"
#include "nn/mixers/hedgehog_log.h"
#include "nn/mixers/masked_rows.h"

namespace hedgerow::nn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  std::string kind;
  std::map<std::string, OptionValue> options;
  std::string name() const {
    std::string text = kind;
    for (const auto& [key, value] : options) text += "_" + key + "_" + to_string(value);
    for (char& c : text)
      if (c == '-' || c == '.') c = '_';
    return text;
  }
};

std::vector<Case> cases() {
  std::vector<Case> all = {{"softmax", {}}};
  for (const char* map : {"exp", "softmax", "softmax_joint", "elu", "relu", "taylor", "exp_half",
                          "performer", "cosformer"}) {
    all.push_back({"hedgehog", {{"map", std::string(map)}}});
  }
  all.push_back({"hedgehog", {{"map", std::string("exp")}, {"bias", true}, {"width", int64_t{7}}}});
  all.push_back({"hedgehog", {{"map", std::string("performer")}, {"width", int64_t{11}}}});
  all.push_back({"hedgehog", {{"map", std::string("cosformer")}, {"bias", true}}});
  all.push_back({"entmax", {{"start", std::string("spread")}}});
  all.push_back({"entmax", {{"share", std::string("layer")}, {"length_scale", true}}});
  all.push_back({"entmax", {{"alpha", std::string("2")}}});
  all.push_back({"talking-heads", {}});
  all.push_back({"talking-heads", {{"alpha", std::string("1.5")}, {"logits", false}}});
  all.push_back({"talking-heads", {{"alpha", std::string("learned")}, {"weights", false}}});
  const std::map<std::string, OptionValue> budget = {{"positions_per_query", int64_t{3}},
                                                     {"length", int64_t{11}}};
  const auto with = [&](std::map<std::string, OptionValue> more) {
    more.insert(budget.begin(), budget.end());
    return more;
  };
  const std::string head = "head", query = "query", common = "common";
  all.push_back({"partial", budget});
  all.push_back({"partial", with({{"mean", common}})});
  all.push_back({"partial", with({{"sharing", head}, {"alpha", std::string("learned")}})});
  all.push_back({"partial", with({{"sharing", head}, {"positions", head}})});
  all.push_back({"partial", with({{"positions", query}, {"alpha", std::string("1.5")}})});
  all.push_back({"partial", with({{"sharing", head}, {"positions", query}})});
  all.push_back({"selected-keys", budget});
  all.push_back({"window", budget});
  return all;
}

struct Heads {
  at::Tensor q, k, v;
};

Heads random_heads(int64_t kv_heads, int64_t queries, int64_t keys, double scale = 1.0) {
  const auto make = [](int64_t heads, int64_t rows, int64_t width) {
    return at::randn({2, heads, rows, width}, at::kDouble);
  };
  return {make(4, queries, 5) * scale, make(kv_heads, keys, 5) * scale, make(kv_heads, keys, 5)};
}

std::shared_ptr<Mixer> random_mixer(const Case& c, int64_t kv_heads) {
  auto mixer = make_mixer(c.kind, HeadLayout::multi_head(4, 5, kv_heads), c.options);
  mixer->to(at::kDouble);
  const at::NoGradGuard no_grad;
  for (at::Tensor& p : mixer->parameters()) p.add_(at::randn_like(p), 0.2);
  return mixer;
}

AttentionMask some_mask(int which, int64_t keys) {
  AttentionMask mask;
  if (which == 1) mask.is_causal = true;
  if (which >= 2) {
    mask.key_mask = at::ones({2, keys}, at::kBool);
    mask.key_mask->select(0, 0).narrow(0, keys - 3, 3).fill_(false);
    mask.is_causal = which == 3;
  }
  return mask;
}

std::string map_of(const Case& c) {
  return c.options.count("map") ? to_string(c.options.at("map")) : "";
}

// Maps whose weights may be exactly zero.
bool has_floor(const Case& c) {
  return c.kind == "entmax" || c.kind == "talking-heads" || c.kind == "partial" ||
         c.kind == "selected-keys" || c.kind == "window" || map_of(c) == "relu" ||
         map_of(c) == "cosformer";
}

class EveryMixer : public ::testing::TestWithParam<Case> {};

TEST_P(EveryMixer, WeightsTimesValuesIsTheMixture) {
  at::manual_seed(3);
  for (const int64_t kv_heads : {4, 2}) {
    for (int which = 0; which < 4; ++which) {
      const auto mixer = random_mixer(GetParam(), kv_heads);
      const Heads h = random_heads(kv_heads, 6, 9);
      const FixedProjector project(h.q, h.k, h.v);
      const MixInput in{{}, {}, project, some_mask(which, 9)};
      const at::Tensor weights = mixer->weights(in);  // [2,4,6,9]
      const at::Tensor v = h.v.repeat_interleave(4 / kv_heads, 1);
      at::Tensor mixed = weights;
      for (const auto& [name, matrix] : mixer->head_matrices()) {
        if (name == "weights_proj") mixed = at::einsum("bhts,hc->bcts", {weights, matrix});
      }
      EXPECT_TRUE(at::allclose(mixer->mix(in), at::matmul(mixed, v), 1e-9, 1e-9)) << which;
      const at::Tensor sums = weights.sum(-1);  // 0 where relu's features have nothing in common
      EXPECT_TRUE(at::allclose(sums, sums.ne(0).to(at::kDouble), 1e-9, 1e-9)) << which;
      if (!has_floor(GetParam())) {
        EXPECT_TRUE(sums.ne(0).all().item<bool>());
      }
    }
  }
}

TEST_P(EveryMixer, LogWeightsAreTheLogarithms) {
  at::manual_seed(4);
  for (const int64_t kv_heads : {4, 2}) {
    for (int which = 0; which < 4; ++which) {
      const auto mixer = random_mixer(GetParam(), kv_heads);
      const Heads h = random_heads(kv_heads, 6, 9);
      const FixedProjector project(h.q, h.k, h.v);
      const MixInput in{{}, {}, project, some_mask(which, 9)};
      const at::Tensor logs = mixer->log_weights(in), weights = mixer->weights(in);
      // The floor adds at most a millionth of the row's mean to an entry; rows of zeros get
      // uniform.
      const double tolerance = has_floor(GetParam()) ? 1e-5 : 1e-9;
      const at::Tensor alive = weights.sum(-1, true).ne(0);
      EXPECT_TRUE(at::allclose(logs.exp() * alive, weights, tolerance, tolerance)) << which;
      const auto visible = in.mask.visible(6, 9);
      const at::Tensor seen = visible ? visible->expand_as(logs) : at::ones_like(logs, at::kBool);
      EXPECT_TRUE(at::equal(logs.isfinite(), seen)) << which;
      EXPECT_TRUE(logs.masked_select(seen.logical_not()).eq(-kInfinity).all().item<bool>());
    }
  }
}

// The derivative along a random direction of everything, against central differences.
TEST_P(EveryMixer, LogWeightsHaveTheirGradient) {
  at::manual_seed(5);
  const auto mixer = random_mixer(GetParam(), 2);
  const Heads h = random_heads(2, 4, 6);
  std::vector<at::Tensor> inputs = mixer->parameters();
  inputs.push_back(h.q.clone().requires_grad_());
  inputs.push_back(h.k.clone().requires_grad_());
  const AttentionMask mask = some_mask(3, 6);
  const at::Tensor target = at::rand({2, 4, 4, 6}, at::kDouble);
  const auto loss = [&] {
    const FixedProjector project(inputs[inputs.size() - 2], inputs.back(), h.v);
    const at::Tensor logs = mixer->log_weights({{}, {}, project, mask});
    return -(target * at::where(logs.isfinite(), logs, at::zeros_like(logs))).sum();
  };
  const auto gradients =
      torch::autograd::grad({loss()}, inputs, {}, {}, false, /*allow_unused=*/true);
  const double step = 1e-5;
  double analytic = 0;
  std::vector<at::Tensor> direction;
  for (size_t i = 0; i < inputs.size(); ++i) {
    direction.push_back(at::randn_like(inputs[i]));
    if (gradients[i].defined()) analytic += (gradients[i] * direction[i]).sum().item<double>();
  }
  const auto shifted = [&](double by) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i].add_(direction[i], by);
    const double value = loss().item<double>();
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i].sub_(direction[i], by);
    return value;
  };
  const double numeric = (shifted(step) - shifted(-step)) / (2 * step);
  EXPECT_NEAR(analytic, numeric, 1e-5 * std::max(1.0, std::fabs(numeric)));
}

TEST_P(EveryMixer, RowsWithoutKeysAreMinusInfinityWithoutGradient) {
  const auto mixer = random_mixer(GetParam(), 4);
  Heads h = random_heads(4, 3, 4);
  h.q.requires_grad_();
  AttentionMask mask;
  mask.key_mask = at::ones({2, 4}, at::kBool);
  mask.key_mask->select(0, 1).fill_(false);
  const FixedProjector project(h.q, h.k, h.v);
  const at::Tensor logs = mixer->log_weights({{}, {}, project, mask});
  EXPECT_TRUE(logs.select(0, 1).eq(-kInfinity).all().item<bool>());
  const at::Tensor seen = logs.isfinite();
  at::where(seen, logs, at::zeros_like(logs)).square().sum().backward();
  EXPECT_TRUE(h.q.grad().isfinite().all().item<bool>());
  EXPECT_TRUE(h.q.grad().select(0, 1).eq(0).all().item<bool>());
  EXPECT_TRUE(mixer->mix({{}, {}, project, mask}).select(0, 1).eq(0).all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(All, EveryMixer, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name(); });

TEST(Softmax, LogWeightsTakeAFloatingMask) {
  const auto mixer = make_mixer("softmax", HeadLayout::multi_head(4, 5));
  const Heads h = random_heads(4, 3, 4);
  AttentionMask mask;
  mask.attn_mask = at::randn({3, 4}, at::kDouble);
  (*mask.attn_mask)[1][2] = -kInfinity;
  const FixedProjector project(h.q, h.k, h.v);
  const MixInput in{{}, {}, project, mask};
  EXPECT_TRUE(at::allclose(mixer->log_weights(in).exp(), mixer->weights(in), 1e-9, 1e-12));
}

// log sum_f exp(a_f + b_f) summed naively in float64.
at::Tensor exact_log_dot(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor sums =
      a.unsqueeze(3) + b.repeat_interleave(a.size(1) / b.size(1), 1).unsqueeze(2);
  return sums.logsumexp(-1) - a.amax(-1, true);
}

TEST(LogDotExp, ExactAtAnySize) {
  at::manual_seed(6);
  for (const double scale : {1.0, 20.0, 60.0, 300.0, 20000.0}) {
    at::Tensor a = (at::randn({2, 4, 7, 16}) * scale).requires_grad_();
    at::Tensor b = (at::randn({2, 2, 9, 16}) * scale).requires_grad_();
    const at::Tensor ours = log_dot_exp(a, b);
    const at::Tensor exact = exact_log_dot(a.detach().to(at::kDouble), b.detach().to(at::kDouble));
    // A sum of two exponents, each up to about 4 scales, less a third.
    const double tolerance = 4 * 0x1p-24 * std::sqrt(3.0) * 4 * scale + 1e-5;
    EXPECT_LT((ours - exact).abs().max().item<double>(), tolerance) << scale;
    ours.sum().backward();
    EXPECT_TRUE(a.grad().isfinite().all().item<bool>()) << scale;
    EXPECT_TRUE(b.grad().isfinite().all().item<bool>()) << scale;
    // Each row of the gradient of a sums to the number of keys less the rows' own maxima
    // (detached).
    at::Tensor expected = at::full({2, 4, 7}, 9.0);
    EXPECT_TRUE(at::allclose(a.grad().sum(-1), expected, 1e-4, 1e-4)) << scale;
  }
}

TEST(LogDotExp, NormalisedIsTheSameWithinAndBeyondTheSafeSpan) {
  at::manual_seed(7);
  const at::Tensor visible = at::rand({2, 1, 1, 9}) < 0.7;
  visible.select(0, 1).fill_(false);  // nothing to see
  for (const double scale : {1.0, 8.0, 200.0}) {
    at::Tensor a = (at::randn({2, 4, 7, 16}, at::kDouble) * scale).requires_grad_();
    at::Tensor b = (at::randn({2, 2, 9, 16}, at::kDouble) * scale).requires_grad_();
    const at::Tensor target = at::rand({2, 4, 7, 9}, at::kDouble);
    const auto gradients = [&](const at::Tensor& logs) {
      const at::Tensor loss = at::where(logs.isfinite(), logs, 0).square().mul(target).sum();
      return torch::autograd::grad({loss}, {a, b}, {}, {}, /*create_graph=*/true);
    };
    const at::Tensor ours = log_normalised_dot_exp(a, b, visible);
    const at::Tensor same = log_normalise(log_dot_exp(a, b), visible);
    EXPECT_TRUE(at::equal(ours.isfinite(), same.isfinite())) << scale;
    EXPECT_TRUE(at::allclose(ours.exp(), same.exp(), 1e-9, 1e-12)) << scale;
    const auto da = gradients(ours), ds = gradients(same);
    for (int i : {0, 1}) EXPECT_TRUE(at::allclose(da[i], ds[i], 1e-8, 1e-8)) << scale << " " << i;
    // Second derivatives.
    const auto second = [&](const torch::autograd::variable_list& first) {
      return torch::autograd::grad({first[0].square().sum() + first[1].square().sum()}, {a, b});
    };
    const auto dda = second(da), dds = second(ds);
    for (int i : {0, 1}) {
      const double size = std::max(1.0, dds[i].abs().max().item<double>());
      EXPECT_TRUE(at::allclose(dda[i], dds[i], 1e-7, 1e-7 * size)) << scale << " " << i;
    }
  }
}

TEST(LogDotExp, FindsPairsThatTheProductLoses) {
  // Maxima at opposite features: the product of the shifted exponentials is exp(-200) = 0 in
  // float32.
  const at::Tensor a = at::tensor({200.f, 0.f}).view({1, 1, 1, 2});
  const at::Tensor b = at::tensor({0.f, 200.f, 200.f, 0.f}).view({1, 1, 2, 2});
  const at::Tensor logs = log_dot_exp(a, b).flatten();
  EXPECT_NEAR(logs[0].item<double>(), std::log(2.0), 1e-5);  // 200 + log 2, less max a
  EXPECT_NEAR(logs[1].item<double>(), 200.0, 1e-4);
}

TEST(Hedgehog, IdentityStartIsACosh) {
  at::manual_seed(7);
  const auto mixer =
      make_mixer("hedgehog", HeadLayout::multi_head(4, 5), {{"map", std::string("exp")}});
  mixer->to(at::kDouble);
  const Heads h = random_heads(4, 3, 6);
  const FixedProjector project(h.q, h.k, h.v);
  const at::Tensor sums = (h.q.unsqueeze(3) + h.k.unsqueeze(2)).cosh().sum(-1);  // [2,4,3,6]
  const at::Tensor expected = sums / sums.sum(-1, true);
  EXPECT_TRUE(at::allclose(mixer->weights({{}, {}, project, {}}), expected, 1e-10, 1e-12));
}

TEST(Hedgehog, ParametersOfEachMap) {
  const HeadLayout layout = HeadLayout::multi_head(4, 5, 2);
  const auto exp = make_mixer("hedgehog", layout, {{"width", int64_t{3}}, {"bias", true}});
  const auto named = exp->named_parameters();
  EXPECT_EQ(named["wq"].sizes(), at::IntArrayRef({4, 5, 3}));
  EXPECT_EQ(named["wk"].sizes(), at::IntArrayRef({2, 5, 3}));
  EXPECT_EQ(named["bq"].sizes(), at::IntArrayRef({4, 3}));
  EXPECT_EQ(named["bk"].sizes(), at::IntArrayRef({2, 3}));
  const auto relu = make_mixer("hedgehog", layout, {{"map", std::string("relu")}});
  EXPECT_TRUE(relu->named_parameters().contains("bq"));
  EXPECT_TRUE(relu->options().get_bool("bias"));  // said as it is, for config.json
  EXPECT_TRUE(
      make_mixer("hedgehog", layout, {{"map", std::string("performer")}})->parameters().empty());
}

TEST(Hedgehog, WidthIsAMultipleOfTheHeadsUnlessGiven) {
  const HeadLayout layout = HeadLayout::multi_head(4, 5, 2);
  const auto width = [&](int64_t given, int64_t expansion) {
    const auto mixer = make_mixer("hedgehog", layout, {{"width", given}, {"expansion", expansion}});
    return mixer->named_parameters()["wk"].size(2);
  };
  EXPECT_EQ(width(0, 1), 5);
  EXPECT_EQ(width(0, 3), 15);
  EXPECT_EQ(width(4, 3), 4);
  EXPECT_THROW(width(0, 0), Error);
  EXPECT_THROW(width(0, 65536 / 5 + 1), Error);
  EXPECT_THROW(width(65537, 1), Error);
}

// Equal columns would stay equal in training.
TEST(Hedgehog, WideMapsStartAsTheIdentityBesideDistinctSeededColumns) {
  const HeadLayout layout = HeadLayout::multi_head(4, 5, 2);
  const auto make = [&](int64_t seed) {
    return make_mixer("hedgehog", layout, {{"width", int64_t{8}}, {"seed", seed}});
  };
  const auto mixer = make(1);
  const at::Tensor wk = mixer->named_parameters()["wk"].detach();  // [2,5,8]
  const at::Tensor extra = wk.narrow(2, 5, 3);
  EXPECT_TRUE(at::equal(wk.narrow(2, 0, 5), at::eye(5).expand({2, 5, 5})));
  EXPECT_GT((extra.unsqueeze(3) - extra.unsqueeze(2))
                .norm(2, 1)
                .masked_select(at::ones({3, 3}, at::kBool).triu(1))
                .min()
                .item<double>(),
            0.1);
  EXPECT_TRUE(at::equal(mixer->named_parameters()["wq"].detach(), wk.repeat_interleave(2, 0)));
  EXPECT_TRUE(at::equal(wk, make(1)->named_parameters()["wk"]));
  EXPECT_FALSE(at::equal(wk, make(2)->named_parameters()["wk"]));
}

TEST(Hedgehog, PerformerProjectionIsSeededAndOrthogonal) {
  const HeadLayout layout = HeadLayout::multi_head(2, 6);
  const auto make = [&](int64_t seed) {
    return make_mixer("hedgehog", layout,
                      {{"map", std::string("performer")}, {"seed", seed}, {"width", int64_t{9}}});
  };
  const at::Tensor w = make(1)->named_buffers()["wq"];  // [2,6,9]
  EXPECT_TRUE(at::equal(w, make(1)->named_buffers()["wq"]));
  EXPECT_FALSE(at::equal(w, make(2)->named_buffers()["wq"]));
  const at::Tensor block = w[0].narrow(1, 0, 6);
  const at::Tensor gram = at::mm(block.t(), block);
  EXPECT_TRUE(at::allclose(gram, gram.diag().diag(), 1e-4, 1e-4));
}

// Performer's and Taylor's features estimate exp(q.k / sqrt(D)): with many features the weights
// come close to softmax's.
TEST(Hedgehog, PerformerAndTaylorApproachSoftmax) {
  at::manual_seed(8);
  const HeadLayout layout = HeadLayout::multi_head(4, 5);
  const Heads h = random_heads(4, 6, 9, 0.5);
  const FixedProjector project(h.q, h.k, h.v);
  const MixInput in{{}, {}, project, {}};
  const at::Tensor softmax = make_mixer("softmax", layout)->weights(in);
  for (const char* map : {"performer", "taylor"}) {
    const auto mixer =
        make_mixer("hedgehog", layout,
                   {{"map", std::string(map)}, {"width", int64_t{map[0] == 'p' ? 20000 : 0}}});
    mixer->to(at::kDouble);
    EXPECT_LT((mixer->weights(in) - softmax).abs().max().item<double>(), 0.03) << map;
  }
}

TEST(Hedgehog, RefusesMasksThatRunningSumsCannotLeaveOut) {
  const auto mixer = make_mixer("hedgehog", HeadLayout::multi_head(4, 5));
  mixer->to(at::kDouble);
  const Heads h = random_heads(4, 3, 4);
  const FixedProjector project(h.q, h.k, h.v);
  AttentionMask mask;
  mask.attn_mask = at::ones({3, 4}, at::kBool);
  EXPECT_THROW(mixer->mix({{}, {}, project, mask}), Error);
  EXPECT_THROW(mixer->log_weights({{}, {}, project, mask}), Error);
  mask.attn_mask = at::zeros({2, 1, 1, 4}, at::kDouble);
  EXPECT_THROW(mixer->weights({{}, {}, project, mask}), Error);
  // Padding in attention's form is fine.
  AttentionMask padding, same;
  padding.key_mask = at::tensor({1, 1, 0, 1, 1, 0, 1, 1}, at::kInt).to(at::kBool).view({2, 4});
  same.attn_mask = padding.key_mask->view({2, 1, 1, 4});
  EXPECT_TRUE(
      at::equal(mixer->mix({{}, {}, project, padding}), mixer->mix({{}, {}, project, same})));
}

TEST(Hedgehog, CosformerRefusesMorePositionsThanItSpans) {
  const auto mixer = make_mixer("hedgehog", HeadLayout::multi_head(4, 5),
                                {{"map", std::string("cosformer")}, {"max_length", int64_t{8}}});
  mixer->to(at::kDouble);
  const Heads fits = random_heads(4, 8, 8), longer = random_heads(4, 9, 9);
  mixer->mix({{}, {}, FixedProjector(fits.q, fits.k, fits.v), {}});
  EXPECT_THROW(mixer->mix({{}, {}, FixedProjector(longer.q, longer.k, longer.v), {}}), Error);
}

// Options that are refused, with a word of the message.
TEST(TalkingHeads, RefusesWhatCannotBe) {
  const auto error = [&](std::map<std::string, OptionValue> options, int64_t kv_heads = 4) {
    try {
      make_mixer("talking-heads", HeadLayout::multi_head(4, 5, kv_heads), options);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(error({{"key_heads", int64_t{5}}}).find("[1, 4]"), std::string::npos);
  EXPECT_NE(error({{"key_heads", int64_t{-1}}}).find("-1"), std::string::npos);
  EXPECT_NE(error({{"key_heads", int64_t{2}}, {"logits", false}}).find("projection"),
            std::string::npos);
  EXPECT_NE(error({{"value_heads", int64_t{2}}, {"weights", false}}).find("projection"),
            std::string::npos);
  EXPECT_NE(error({{"heads", int64_t{2}}}, 2).find("grouped"), std::string::npos);
  EXPECT_NE(error({{"dynamic", std::string("y_logits")}}).find("y_logits"), std::string::npos);
  EXPECT_NE(error({{"dynamic", std::string("all")}}).find("width"), std::string::npos);
  EXPECT_NE(error({{"alpha", std::string("0.5")}}).find("0.5"), std::string::npos);
}

TEST(TalkingHeads, DynamicTermsFollowTheirTokens) {
  at::manual_seed(8);
  HeadLayout layout = HeadLayout::multi_head(4, 5);
  layout.model_dim = 6;
  const auto mixer = make_mixer("talking-heads", layout,
                                {{"dynamic", std::string("all")}, {"init", std::string("random")}});
  mixer->to(at::kDouble);
  ASSERT_EQ(mixer->parameters().size(), 6u);
  const Heads h = random_heads(4, 3, 7);
  const at::Tensor x = at::randn({2, 3, 6}, at::kDouble), m = at::randn({2, 7, 6}, at::kDouble);
  const FixedProjector project(h.q, h.k, h.v);
  const auto p = mixer->named_parameters();
  const at::Tensor scores = at::matmul(h.q, h.k.transpose(-1, -2)) / std::sqrt(5.0);
  const auto mix = [&](const at::Tensor& from, const char* proj, const char* of_x,
                       const char* of_m) {
    const at::Tensor pairs = p[proj] + at::einsum("btd,dio->btio", {x, p[of_x]}).unsqueeze(2) +
                             at::einsum("bsd,dio->bsio", {m, p[of_m]}).unsqueeze(1);
    return at::einsum("bits,btsio->bots", {from, pairs});
  };
  const at::Tensor weights = mix(scores, "logits_proj", "x_logits", "m_logits").softmax(-1);
  const at::Tensor want = at::matmul(mix(weights, "weights_proj", "x_weights", "m_weights"), h.v);
  EXPECT_TRUE(at::allclose(mixer->mix({x, m, project, {}}), want, 1e-9, 1e-9));
  EXPECT_TRUE(at::allclose(mixer->weights({x, m, project, {}}), weights, 1e-9, 1e-9));
}

// Key head 1 is twice key head 0 and value head 3 the same as value head 2: a layer without them is
// the same layer.
TEST(TalkingHeads, FewerHeadsStandInForTheirMultiples) {
  at::manual_seed(9);
  const Heads h = random_heads(4, 30, 30);
  h.q.select(1, 1).copy_(2 * h.q.select(1, 0));
  h.k.select(1, 1).copy_(h.k.select(1, 0));
  h.v.select(1, 3).copy_(h.v.select(1, 2));
  const auto full = make_mixer("softmax", HeadLayout::multi_head(4, 5));
  const FixedProjector project(h.q, h.k, h.v);
  const at::Tensor want = full->mix({{}, {}, project, {}});
  const at::Tensor j = at::matmul(h.q, h.k.transpose(-1, -2)).transpose(0, 1).flatten(1, 2);
  const at::Tensor rows = (j - j.mean(-1, true)).flatten(1);
  const at::Tensor outs =
      at::matmul(full->weights({{}, {}, project, {}}).unsqueeze(2), h.v.unsqueeze(1))
          .permute({1, 2, 0, 3, 4})
          .flatten(2);  // [h,a,N]
  HeadGrams grams;
  grams.logits = at::matmul(rows, rows.t()).expand({4, 4, 4}).contiguous();
  grams.outputs = at::matmul(outs, outs.transpose(1, 2));
  grams.contributions = at::eye(4, at::kDouble);
  const auto mixer = make_mixer("talking-heads", HeadLayout::multi_head(4, 5),
                                {{"key_heads", int64_t{3}}, {"value_heads", int64_t{3}}});
  mixer->to(at::kDouble);
  const HeadChoice kept = mixer->start_from(grams);
  ASSERT_EQ(kept.key_heads.size(), 3u);
  ASSERT_EQ(kept.value_heads.size(), 3u);
  const at::Tensor keys = at::tensor(kept.key_heads), values = at::tensor(kept.value_heads);
  const FixedProjector fewer(h.q.index_select(1, keys), h.k.index_select(1, keys),
                             h.v.index_select(1, values));
  const at::Tensor got = mixer->mix({{}, {}, fewer, {}});  // [2,3,30,5]
  // W of the value heads that stand for two is the sum of both
  for (size_t i = 0; i < kept.value_heads.size(); ++i) {
    const int64_t c = kept.value_heads[i];
    const at::Tensor whole = c < 2 ? want.select(1, c) : want.select(1, 2) + want.select(1, 3);
    EXPECT_TRUE(at::allclose(got.select(1, static_cast<int64_t>(i)), whole, 1e-4, 1e-4)) << c;
  }
}

TEST(Registry, ListsWhatItKnows) {
  try {
    make_mixer("hedgehop", HeadLayout::multi_head(1, 1));
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(
        e.what(),
        "mixer: unknown kind \"hedgehop\"; known: softmax, hedgehog, entmax, talking-heads, "
        "partial, selected-keys, linformer, window");
  }
}

}  // namespace
}  // namespace hedgerow::nn
