#include "analysis/head_matrices.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "nn/mixer.h"

namespace hedgerow::analysis {
namespace {

constexpr int64_t kHeads = 4;

at::Tensor matrix(std::vector<double> values, int64_t rows) {
  return at::tensor(values, at::kDouble).view({rows, -1});
}

TEST(EffectiveRank, IsTheNumberOfEqualSingularValues) {
  EXPECT_NEAR(effective_rank(at::eye(5)), 5, 1e-12);
  EXPECT_NEAR(effective_rank(at::eye(3, 7) * -0.25), 3, 1e-12);
  EXPECT_NEAR(effective_rank(at::full({4, 6}, 0.3, at::kDouble)), 1, 1e-6);
  EXPECT_EQ(effective_rank(at::zeros({3, 3})), 0);
  EXPECT_TRUE(std::isnan(effective_rank(matrix({1, 0, 0, std::nan("")}, 2))));
}

TEST(EffectiveRank, WeighsUnequalSingularValuesByTheirEntropy) {
  // A rotation on either side changes nothing: singular values 3 and 1, p = 3/4 and 1/4.
  const double c = std::cos(0.7), s = std::sin(0.7);
  const at::Tensor rotation = matrix({c, -s, s, c}, 2);
  const double entropy = -(0.75 * std::log(0.75) + 0.25 * std::log(0.25));
  EXPECT_NEAR(effective_rank(at::matmul(rotation, matrix({3, 0, 0, -1}, 2))), std::exp(entropy),
              1e-12);
}

TEST(IdentityDistance, IsRelativeToTheIdentity) {
  EXPECT_EQ(identity_distance(at::eye(4)), 0);
  EXPECT_NEAR(identity_distance(at::zeros({9, 9})), 1, 1e-12);
  EXPECT_NEAR(identity_distance(matrix({1, 0.3, 0, 1.4}, 2)), 0.5 / std::sqrt(2.0), 1e-12);
  EXPECT_TRUE(std::isnan(identity_distance(at::eye(2, 3))));
}

std::shared_ptr<models::Encoder> encoder_of_three_layers() {
  models::EncoderConfig c;
  c.architecture = "bert";
  c.vocab_size = 10;
  c.hidden_size = 16;
  c.num_layers = 3;
  c.num_heads = kHeads;
  c.intermediate_size = 16;
  c.max_positions = 8;
  c.type_vocab_size = 2;
  return std::make_shared<models::Encoder>(c);
}

TEST(HeadMatrices, HaveALayerEach) {
  const auto model = encoder_of_three_layers();
  EXPECT_TRUE(head_matrices(*model).empty());
  const auto talking_heads = [&](int64_t layer, std::map<std::string, nn::OptionValue> options) {
    nn::Attention& attention = model->attention(layer);
    attention.set_mixer_and_projections(
        nn::make_mixer("talking-heads", attention.shape().layout, options));
  };
  talking_heads(0, {{"init", std::string("random")}, {"weights", false}});
  talking_heads(2, {{"key_heads", int64_t{2}}});
  const auto matrices = head_matrices(*model);
  ASSERT_EQ(matrices.size(), 2);
  const HeadMatrices &logits = matrices.at("logits_proj"), &weights = matrices.at("weights_proj");
  EXPECT_EQ(logits.values[0].sizes(), (std::vector<int64_t>{kHeads, kHeads}));
  EXPECT_EQ(logits.effective_rank[0], effective_rank(logits.values[0]));
  EXPECT_EQ(logits.identity_distance[0], identity_distance(logits.values[0]));
  EXPECT_GT(logits.identity_distance[0], 0.1);
  EXPECT_FALSE(logits.values[1].defined());
  EXPECT_TRUE(std::isnan(logits.effective_rank[1]) && std::isnan(logits.identity_distance[1]));
  EXPECT_EQ(logits.values[2].sizes(), (std::vector<int64_t>{2, kHeads}));
  EXPECT_NEAR(logits.effective_rank[2], 2, 1e-12);
  EXPECT_TRUE(std::isnan(logits.identity_distance[2]));
  EXPECT_FALSE(weights.values[0].defined() || weights.values[1].defined());
  EXPECT_TRUE(at::equal(weights.values[2], at::eye(kHeads, at::kDouble)));
  EXPECT_EQ(weights.identity_distance[2], 0);
}

}  // namespace
}  // namespace hedgerow::analysis
