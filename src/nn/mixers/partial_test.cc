// Attention from partial computation as a mechanism, and what it is compared with.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hedgerow/error.h"
#include "hedgerow/ops.h"
#include "nn/mixer.h"

namespace hedgerow::nn {
namespace {

using Given = std::map<std::string, OptionValue>;
constexpr int64_t kHeads = 3, kWidth = 4, kLength = 10;

std::shared_ptr<Mixer> make(const char* kind, Given more = {}) {
  more.insert({"positions_per_query", int64_t{4}});
  more.insert({"length", kLength});
  auto mixer = make_mixer(kind, HeadLayout::multi_head(kHeads, kWidth), more);
  mixer->to(at::kDouble);
  return mixer;
}

struct Heads {
  at::Tensor q, k, v;
};
Heads random_heads(int64_t length, int64_t batch = 2) {
  const auto one = [&] { return at::randn({batch, kHeads, length, kWidth}, at::kDouble); };
  return {one(), one(), one()};
}

// Two parts of moments as a collection gives them to the mixer.
ScoreSample sample_of(const Mixer& mixer, const at::Tensor& scores) {  // [B,H,T,S]
  const ScoreRequest request = *mixer.score_request();
  std::vector<ScoreMoments> parts;
  for (const at::Tensor& half : scores.chunk(2)) {
    at::Tensor rows = half.transpose(0, 1).flatten(1, 2);
    std::vector<int64_t> groups = {kHeads};
    if (request.by_query || request.mean_by_query) {
      rows = request.pool_heads ? half.permute({2, 0, 1, 3}).flatten(1, 2)
                                : half.permute({1, 2, 0, 3});
      groups = {rows.sizes().begin(), rows.sizes().end() - 2};
    }
    parts.push_back(ScoreMoments::zeros(groups, kLength, request.mean_by_query ? 1 : 0));
    parts.back().add(rows);
  }
  return {parts, scores.softmax(-1).mean(0)};
}

const Given kCommonMean = {{"mean", std::string("common")}};
const Given kQueryBoth = {{"mean", std::string("common")}, {"positions", std::string("query")}};
const Given kByHead = {{"sharing", std::string("head")}, {"positions", std::string("head")}};
const Given kRByHead = {{"sharing", std::string("head")}};
const Given kByQuery = {{"positions", std::string("query")}};
const Given kByBoth = {{"sharing", std::string("head")}, {"positions", std::string("query")}};

TEST(Partial, IsExactWhereFewScoresSayAll) {
  at::manual_seed(1);
  for (const Given& options :
       {Given{}, kCommonMean, kByHead, kRByHead, kByQuery, kQueryBoth, kByBoth}) {
    const auto mixer = make("partial", options);
    const at::Tensor q = at::randn({80, kHeads, kLength, kWidth}, at::kDouble);
    const at::Tensor basis = at::randn({kLength, kWidth}, at::kDouble);  // of all keys
    const at::Tensor k = basis.matmul(at::randn({80, kHeads, kWidth, kWidth}, at::kDouble));
    const at::Tensor scores = q.matmul(k.transpose(2, 3)) / std::sqrt(double{kWidth});
    const auto fit = mixer->start_from(sample_of(*mixer, scores));
    ASSERT_TRUE(fit.has_value());
    EXPECT_LT(fit->left.max().item<double>(), 1e-6);
    const at::Tensor v = at::randn({80, kHeads, kLength, kWidth}, at::kDouble);
    const FixedProjector project(q, k, v);
    EXPECT_TRUE(at::allclose(mixer->mix({{}, {}, project, {}}), ops::softmax_attention(q, k, v),
                             5e-3, 5e-3));  // the least ridge leaves a millionth of the variance
  }
}

// Where one key gets nearly all weight, its own score is the one to know.
TEST(Partial, WeightedSelectionLooksWhereTheWeightIs) {
  at::manual_seed(9);
  const at::Tensor scores = at::randn({40, kHeads, kLength, kLength}, at::kDouble);
  for (const bool weighted : {false, true}) {
    const auto mixer = make("partial", {{"positions_per_query", int64_t{1}},
                                        {"first", false},
                                        {"weighted", weighted},
                                        {"mean", std::string("common")}});
    ScoreSample sample = sample_of(*mixer, scores * at::linspace(2, 1, kLength, at::kDouble));
    sample.mean_weights = at::full({kHeads, kLength, kLength}, 0.01, at::kDouble);
    sample.mean_weights.select(2, 7).fill_(0.91);
    mixer->start_from(sample);
    EXPECT_EQ(mixer->named_buffers()["positions"][0].item<int64_t>(), weighted ? 7 : 0);
  }
}

// A shorter sequence is the first rows of the reconstruction, as masks at the end have it.
TEST(Partial, ShortSequencesAreMaskedOnes) {
  at::manual_seed(2);
  for (const Given& options :
       {Given{}, kCommonMean, kByHead, kRByHead, kByQuery, kQueryBoth, kByBoth}) {
    const auto mixer = make("partial", options);
    const at::NoGradGuard no_grad;
    for (at::Tensor& p : mixer->parameters()) p.copy_(at::randn_like(p));
    const Heads h = random_heads(kLength);
    AttentionMask mask;
    for (const int64_t length : {1, 2, 5, 9}) {
      mask.key_mask = at::arange(kLength).lt(length).expand({2, kLength});
      const FixedProjector whole(h.q, h.k, h.v);
      const auto cut = [&](const at::Tensor& t) { return t.narrow(2, 0, length); };
      const FixedProjector part(cut(h.q), cut(h.k), cut(h.v));
      EXPECT_TRUE(at::allclose(mixer->mix({{}, {}, part, {}}),
                               cut(mixer->mix({{}, {}, whole, mask})), 1e-9, 1e-9))
          << length;
      for (int which = 0; which < 4; ++which) {
        AttentionMask causal;
        causal.is_causal = which < 2;
        if (which == 1) causal.attn_mask = at::randn({1, length}, at::kDouble);
        if (which == 2) causal.attn_mask = at::arange(length).remainder(2).eq(0).unsqueeze(1);
        if (which == 3) causal.attn_mask = at::randn({length, 1}, at::kDouble);
        const MixInput in{{}, {}, part, causal};
        EXPECT_TRUE(at::allclose(mixer->weights(in).matmul(cut(h.v)), mixer->mix(in), 1e-9, 1e-9));
        if (which == 3) {  // adding one number to a row changes nothing
          EXPECT_TRUE(at::allclose(mixer->mix(in), mixer->mix({{}, {}, part, {}}), 1e-9, 1e-9));
        }
      }
    }
  }
}

// A part of the queries has the rows of its positions.
TEST(Partial, QueriesOfAPartKeepTheirPositions) {
  at::manual_seed(3);
  for (const Given& options : {Given{}, kCommonMean, kByQuery}) {
    const auto mixer = make("partial", options);
    const at::NoGradGuard no_grad;
    for (at::Tensor& p : mixer->parameters()) p.copy_(at::randn_like(p));
    const Heads h = random_heads(kLength);
    const FixedProjector whole(h.q, h.k, h.v), part(h.q.narrow(2, 3, 4), h.k, h.v);
    MixInput in{{}, {}, part, {}};
    in.first_position = 3;
    EXPECT_TRUE(at::allclose(mixer->weights(in),
                             mixer->weights({{}, {}, whole, {}}).narrow(2, 3, 4), 1e-12, 1e-12));
  }
}

TEST(Partial, LengthsThatAreExactOrRefused) {
  at::manual_seed(4);
  const auto mixer = make("partial", {{"exact_up_to", int64_t{6}}});
  EXPECT_THROW(make("partial", {{"exact_up_to", kLength}}), Error);
  for (const int64_t length : {6, 7, 11}) {
    const Heads h = random_heads(length);
    const FixedProjector project(h.q, h.k, h.v);
    const MixInput in{{}, {}, project, {}};
    if (length > kLength) {
      EXPECT_THROW(mixer->mix(in), Error);
      const auto longer = make("partial", {{"longer", std::string("exact")}});
      EXPECT_TRUE(at::allclose(longer->mix(in), ops::softmax_attention(h.q, h.k, h.v)));
      EXPECT_FALSE(longer->max_keys().has_value());
    } else {
      EXPECT_EQ(at::allclose(mixer->mix(in), ops::softmax_attention(h.q, h.k, h.v)), length == 6);
    }
  }
  EXPECT_EQ(mixer->max_keys(), kLength);
}

TEST(Partial, SharedParametersAreOneTensor) {
  const Given shared = {{"sharing", std::string("shared")}, {"mean", std::string("common")}};
  const auto first = make("partial", shared), second = make("partial", shared);
  second->share_parameters(*first);
  const auto theirs = first->named_parameters(), ours = second->named_parameters();
  for (const auto& item : theirs) EXPECT_TRUE(ours[item.key()].is_same(item.value()));
  const auto other = make("partial", shared);
  const at::NoGradGuard no_grad;
  other->named_parameters()["mean"].add_(1);
  EXPECT_THROW(other->share_parameters(*first), Error);  // other values
  const auto by_layer = make("partial", {{"sharing", std::string("shared")}});
  by_layer->share_parameters(*make("partial", {{"sharing", std::string("shared")}}));
  EXPECT_THROW(make("partial", {{"length", int64_t{12}}})->share_parameters(*first), Error);
  EXPECT_THROW(first->share_parameters(*make("window")), Error);
  EXPECT_THROW(make("window")->share_parameters(*first), Error);
}

TEST(Partial, FixedReconstructionsDoNotTrain) {
  EXPECT_TRUE(make("partial", {{"r", std::string("fixed")}})->parameters().empty());
  EXPECT_EQ(make("partial")->parameters().size(), 2u);
  EXPECT_EQ(make("partial")->named_buffers()["positions"].scalar_type(), at::kLong);
}

TEST(Partial, WrongOptions) {
  for (const Given& options :
       {Given{{"positions_per_query", int64_t{0}}}, Given{{"positions_per_query", int64_t{11}}},
        Given{{"length", int64_t{0}}}, Given{{"sharing", std::string("all")}},
        Given{{"positions", std::string("head")}}, Given{{"exact_up_to", int64_t{-1}}},
        Given{{"selection", std::string("best")}}, Given{{"alpha", std::string("0.5")}}})
    EXPECT_THROW(make("partial", options), Error);
}

// As a checkpoint that was changed by hand may have them.
TEST(SelectedPositions, ThoseThatDoNotAscendAreRefused) {
  const Heads h = random_heads(kLength);
  const FixedProjector project(h.q, h.k, h.v);
  for (const char* kind : {"partial", "selected-keys"}) {
    for (const std::pair<int64_t, int64_t>& first :
         {std::pair<int64_t, int64_t>{0, 0}, {1, 0}, {-1, 1}, {0, kLength}}) {
      const auto mixer = make(kind);
      at::Tensor positions = mixer->named_buffers()["positions"];
      positions.copy_(at::arange(positions.size(0), at::kLong));
      EXPECT_NO_THROW(mixer->mix({{}, {}, project, {}}));
      positions[0] = first.first;
      positions[first.second == kLength ? positions.size(0) - 1 : 1] = first.second;
      EXPECT_THROW(mixer->mix({{}, {}, project, {}}), Error) << first.first << ' ' << first.second;
    }
  }
}

TEST(SelectedKeys, IsAttentionToTheSelectedAlone) {
  at::manual_seed(5);
  const auto mixer = make("selected-keys");
  const at::Tensor scores = at::randn({20, kHeads, kLength, kLength}, at::kDouble) *
                            at::linspace(2, 0.1, kLength, at::kDouble);
  EXPECT_FALSE(mixer->start_from(sample_of(*mixer, scores)).has_value());
  const at::Tensor positions = mixer->named_buffers()["positions"];
  EXPECT_EQ(positions[0].item<int64_t>(), 0);
  const Heads h = random_heads(kLength);
  const FixedProjector project(h.q, h.k, h.v);
  AttentionMask mask;
  mask.key_mask = at::zeros({2, kLength}, at::kBool);
  mask.key_mask->index_fill_(1, positions, true);
  EXPECT_TRUE(at::allclose(mixer->mix({{}, {}, project, {}}),
                           ops::softmax_attention(h.q, h.k, h.v, mask.combined()), 1e-9, 1e-9));
}

TEST(Linformer, IsAttentionToProjectedRows) {
  at::manual_seed(6);
  const auto mixer = make("linformer");
  const at::NoGradGuard no_grad;
  auto named = mixer->named_parameters();
  EXPECT_TRUE(at::allclose(named["key_proj"].sum(1), at::ones({4}, at::kDouble), 1e-6, 1e-6));
  for (at::Tensor& p : mixer->parameters()) p.copy_(at::randn_like(p));
  const Heads h = random_heads(7);
  AttentionMask mask;
  mask.key_mask = at::ones({2, 7}, at::kBool);
  mask.key_mask->select(0, 1).narrow(0, 5, 2).fill_(false);
  const FixedProjector project(h.q, h.k, h.v);
  const at::Tensor keep = mask.key_mask->to(at::kDouble).view({2, 1, 7, 1});
  const auto rows = [&](const char* name, const at::Tensor& t) {
    return named[name].narrow(1, 0, 7).matmul(t * keep);
  };
  const MixInput in{{}, {}, project, mask};
  EXPECT_TRUE(at::allclose(
      mixer->mix(in), ops::softmax_attention(h.q, rows("key_proj", h.k), rows("value_proj", h.v)),
      1e-9, 1e-9));
  EXPECT_TRUE(at::allclose(mixer->weights(in).matmul(h.v), mixer->mix(in), 1e-9, 1e-9));
  EXPECT_TRUE(
      at::equal(mixer->log_weights(in).isfinite(), mask.combined()->expand({2, kHeads, 7, 7})));
  mask.is_causal = true;
  EXPECT_THROW(mixer->mix({{}, {}, project, mask}), Error);
}

TEST(Window, SeesTheNearestKeys) {
  const auto mixer = make("window");
  const Heads h = random_heads(kLength, 1);
  const FixedProjector project(h.q, h.k, h.v);
  const at::Tensor seen = mixer->weights({{}, {}, project, {}}).gt(0)[0][0];
  for (int64_t t = 0; t < kLength; ++t) {
    const int64_t first = std::clamp<int64_t>(t - 2, 0, kLength - 4);
    for (int64_t s = 0; s < kLength; ++s)
      EXPECT_EQ(seen[t][s].item<bool>(), s >= first && s < first + 4) << t << " " << s;
  }
}

}  // namespace
}  // namespace hedgerow::nn
