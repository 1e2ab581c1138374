#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "analysis/attention_maps.h"
#include "analysis/attention_stats.h"
#include "analysis/embeddings.h"
#include "hedgerow/error.h"

namespace hedgerow::analysis {
namespace {

models::EncoderConfig tiny_config() {
  models::EncoderConfig c;
  c.architecture = "bert";
  c.vocab_size = 50;
  c.hidden_size = 24;
  c.num_layers = 3;
  c.num_heads = 4;
  c.intermediate_size = 32;
  c.max_positions = 700;
  c.type_vocab_size = 2;
  return c;
}

std::shared_ptr<models::Encoder> tiny_encoder(uint64_t seed) {
  auto encoder = std::make_shared<models::Encoder>(tiny_config());
  at::Generator generator = at::detail::createCPUGenerator(seed);
  const at::NoGradGuard no_grad;
  for (auto& parameter : encoder->parameters())
    parameter.copy_(at::randn(parameter.sizes(), generator) * 0.5);
  encoder->eval();
  return encoder;
}

models::EncoderInput random_input(int64_t rows, int64_t length, bool padded) {
  at::Generator generator =
      at::detail::createCPUGenerator(static_cast<uint64_t>(rows * 1000 + length));
  models::EncoderInput input;
  input.input_ids = at::randint(0, 50, {rows, length}, generator, at::kLong);
  if (padded) {
    at::Tensor mask = at::ones({rows, length}, at::kLong);
    for (int64_t r = 0; r < rows; ++r) mask[r].narrow(0, length - r, r).zero_();
    input.attention_mask = mask;
  }
  return input;
}

std::shared_ptr<models::Encoder> swapped(uint64_t seed) {
  auto encoder = tiny_encoder(seed);
  for (int64_t layer = 0; layer < encoder->num_layers(); ++layer) {
    nn::Attention& attention = encoder->attention(layer);
    attention.set_mixer(
        nn::make_mixer("hedgehog", attention.shape().layout, {{"map", std::string("softmax")}}));
  }
  return encoder;
}

// The definition, with plain weights of all layers at once.
HeadTable plain_kl(models::Encoder& teacher, models::Encoder& model,
                   const models::EncoderInput& input) {
  std::vector<at::Tensor> p(3), m(3);
  visit_weights(teacher, input,
                [&](int64_t layer, const at::Tensor& w) { p[layer] = w.to(at::kDouble); });
  visit_weights(model, input,
                [&](int64_t layer, const at::Tensor& w) { m[layer] = w.to(at::kDouble); });
  HeadTable table(3, std::vector<double>(4, 0.0));
  for (int64_t layer = 0; layer < 3; ++layer) {
    int64_t rows = 0;
    for (int64_t b = 0; b < p[layer].size(0); ++b) {
      for (int64_t t = 0; t < p[layer].size(2); ++t) {
        if (input.attention_mask && (*input.attention_mask)[b][t].item<int64_t>() == 0) continue;
        ++rows;
        for (int64_t h = 0; h < 4; ++h) {
          for (int64_t s = 0; s < p[layer].size(3); ++s) {
            const double a = p[layer][b][h][t][s].item<double>(),
                         c = m[layer][b][h][t][s].item<double>();
            if (a > 0) table[layer][h] += a * (std::log(a) - std::log(c));
          }
        }
      }
    }
    for (double& value : table[layer]) value /= static_cast<double>(rows);
  }
  return table;
}

TEST(AttentionStats, KlIsTheDefinitionAndZeroForTheSameModel) {
  auto teacher = tiny_encoder(1), model = swapped(1);
  for (const bool padded : {false, true}) {
    const models::EncoderInput input = random_input(3, 9, padded);
    const HeadTable streamed = kl_of_models(*teacher, *model, {input}),
                    plain = plain_kl(*teacher, *model, input);
    for (int64_t layer = 0; layer < 3; ++layer)
      for (int64_t h = 0; h < 4; ++h)
        EXPECT_NEAR(streamed[layer][h], plain[layer][h], 1e-4 * (1 + plain[layer][h]));
    EXPECT_NEAR(mean_over_layers(kl_of_models(*teacher, *teacher, {input})), 0, 1e-6);
    EXPECT_GT(mean_over_layers(kl_on_teacher_heads(*teacher, *model, {input})), 1e-3);
  }
}

TEST(AttentionStats, BlocksOfQueriesGiveTheSameAsTheWhole) {
  auto teacher = tiny_encoder(1), model = swapped(1);
  // 2 x 600 x 600 pairs exceed what is computed at once; its rows alone do not.
  const models::EncoderInput both = random_input(2, 600, false);
  const HeadTable together = kl_on_teacher_heads(*teacher, *model, {both});
  std::vector<models::EncoderInput> apart(2);
  for (int64_t r = 0; r < 2; ++r) apart[r].input_ids = both.input_ids.narrow(0, r, 1);
  const HeadTable alone = kl_on_teacher_heads(*teacher, *model, apart);
  for (int64_t layer = 0; layer < 3; ++layer)
    for (int64_t h = 0; h < 4; ++h) EXPECT_NEAR(together[layer][h], alone[layer][h], 1e-5);
}

TEST(AttentionStats, EntropyOfUniformWeightsIsTheLogOfTheirNumber) {
  auto encoder = tiny_encoder(1);
  {
    const at::NoGradGuard no_grad;
    for (int64_t layer = 0; layer < 3; ++layer) {
      encoder->attention(layer).query().weight.zero_();
      encoder->attention(layer).query().bias.zero_();
    }
  }
  const HeadTable table = entropy(*encoder, {random_input(2, 8, false)});
  for (const auto& heads : table)
    for (double value : heads) EXPECT_NEAR(value, std::log(8.0), 1e-5);
}

TEST(AttentionStats, RefusesModelsOfDifferentDepth) {
  auto teacher = tiny_encoder(1);
  models::EncoderConfig c = tiny_config();
  c.num_layers = 2;
  models::Encoder other(c);
  EXPECT_THROW(kl_of_models(*teacher, other, {random_input(1, 4, false)}), Error);
}

TEST(AttentionMapsTest, BytesAreSquareRootsAndBinsKeepTheLargest) {
  auto encoder = tiny_encoder(2);
  const models::EncoderInput input = random_input(1, 10, false);
  const AttentionMaps full = attention_maps(*encoder, input),
                      binned = attention_maps(*encoder, input, 4);
  EXPECT_EQ(full.size, 10);
  EXPECT_EQ(full.bin, 1);
  ASSERT_EQ(full.bytes.size(), 3u * 4 * 100);
  EXPECT_EQ(binned.bin, 3);
  EXPECT_EQ(binned.size, 4);
  ASSERT_EQ(binned.bytes.size(), 3u * 4 * 16);
  std::vector<at::Tensor> weights(3);
  visit_weights(*encoder, input, [&](int64_t layer, const at::Tensor& w) { weights[layer] = w; });
  for (int64_t layer = 0; layer < 3; ++layer)
    for (int64_t h = 0; h < 4; ++h) {
      uint8_t expected[4][4] = {};
      for (int64_t t = 0; t < 10; ++t)
        for (int64_t s = 0; s < 10; ++s) {
          const uint8_t byte = full.bytes[((layer * 4 + h) * 10 + t) * 10 + s];
          EXPECT_NEAR(byte, 255 * std::sqrt(weights[layer][0][h][t][s].item<double>()), 0.51);
          expected[t / 3][s / 3] = std::max(expected[t / 3][s / 3], byte);
        }
      for (int64_t t = 0; t < 4; ++t)
        for (int64_t s = 0; s < 4; ++s)
          EXPECT_EQ(binned.bytes[((layer * 4 + h) * 4 + t) * 4 + s], expected[t][s]);
    }
}

TEST(Base64, KnownTexts) {
  const auto encode = [](const std::string& text) { return base64({text.begin(), text.end()}); };
  EXPECT_EQ(encode(""), "");
  EXPECT_EQ(encode("f"), "Zg==");
  EXPECT_EQ(encode("fo"), "Zm8=");
  EXPECT_EQ(encode("foo"), "Zm9v");
  EXPECT_EQ(encode("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64({0xff, 0xfe, 0xfd}), "//79");
}

TEST(Embeddings, OrderIsKeptAndFidelityOfTheSameIsOne) {
  models::LoadedModel model;
  model.encoder = tiny_encoder(3);
  std::vector<data::Sequence> texts;
  for (int64_t i = 0; i < 40; ++i)
    texts.push_back({std::vector<int64_t>(1 + (i * 7) % 13, 3 + i), {}});
  const at::Tensor all = embed_texts(model, texts);
  for (const int64_t i : {0, 5, 39}) {
    const at::Tensor one = embed_texts(model, {texts[i]});
    EXPECT_LT((all[i] - one[0]).abs().max().item<double>(), 1e-4);
  }
  const EmbeddingFidelity same = embedding_fidelity(all, all);
  EXPECT_NEAR(same.embedding_cosine, 1, 1e-6);
  EXPECT_EQ(same.nn_agreement, 1);
  EXPECT_EQ(same.top10_overlap, 1);
  EXPECT_TRUE(
      std::isnan(embedding_fidelity(all.narrow(0, 0, 5), all.narrow(0, 0, 5)).nn_agreement));
}

}  // namespace
}  // namespace hedgerow::analysis
