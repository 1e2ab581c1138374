// Statistics of heads against plain loops over full weights, and against known answers.
#include "analysis/head_statistics.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "hedgerow/error.h"

namespace hedgerow::analysis {
namespace {

constexpr int64_t kLayers = 2, kHeads = 4, kWidth = 24;

models::EncoderConfig tiny_config() {
  models::EncoderConfig c;
  c.architecture = "bert";
  c.vocab_size = 50;
  c.hidden_size = kWidth;
  c.num_layers = kLayers;
  c.num_heads = kHeads;
  c.intermediate_size = 32;
  c.max_positions = 700;
  c.type_vocab_size = 2;
  return c;
}

// float64, so that sums of float32 do not blur the comparison.
std::shared_ptr<models::Encoder> tiny_encoder(const std::string& mixer = "softmax",
                                              const std::string& map = "") {
  auto encoder = std::make_shared<models::Encoder>(tiny_config());
  at::Generator generator = at::detail::createCPUGenerator(7);
  const at::NoGradGuard no_grad;
  for (auto& parameter : encoder->parameters())
    parameter.copy_(at::randn(parameter.sizes(), generator) * 0.5);
  if (mixer != "softmax") {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      nn::Attention& attention = encoder->attention(layer);
      attention.set_mixer(nn::make_mixer(mixer, attention.shape().layout,
                                         {{"map", map}, {"max_length", int64_t{700}}}));
    }
  }
  encoder->to(at::kDouble);
  encoder->eval();
  return encoder;
}

// Row r of `rows` loses its last r * 2 tokens.
StatisticsInput random_input(int64_t rows, int64_t length, bool padded) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(rows + length));
  StatisticsInput out;
  out.input.input_ids = at::randint(0, 50, {rows, length}, generator, at::kLong);
  if (padded) {
    at::Tensor mask = at::ones({rows, length}, at::kLong);
    for (int64_t r = 0; r < rows; ++r) mask[r].narrow(0, length - 2 * r, 2 * r).zero_();
    out.input.attention_mask = mask;
  }
  return out;
}

// Weights that do not depend on queries: a pattern of offsets, equal among the visible keys that it
// names; heads may differ.
class PatternMixer : public nn::Mixer {
 public:
  // [head] -> offsets; empty: all keys alike.
  PatternMixer(const nn::HeadLayout& layout, std::vector<std::vector<int64_t>> offsets)
      : layout_(layout), offsets_(std::move(offsets)) {}
  std::string kind() const override { return "pattern"; }
  const nn::Options& options() const override { return options_; }
  const nn::HeadLayout& layout() const override { return layout_; }
  at::Tensor mix(const nn::MixInput& in) override {
    return at::matmul(weights(in), in.project.values());
  }
  at::Tensor weights(const nn::MixInput& in) override {
    const at::Tensor q = in.project.queries();
    const int64_t num_queries = q.size(2), num_keys = in.project.keys().size(2);
    at::Tensor p = at::zeros({q.size(0), kHeads, num_queries, num_keys}, q.options());
    for (int64_t h = 0; h < kHeads; ++h) {
      if (offsets_[h].empty()) p.select(1, h).fill_(1);
      for (const int64_t offset : offsets_[h])
        for (int64_t t = 0; t < num_queries; ++t) {
          const int64_t s = in.first_position + t + offset;
          if (s >= 0 && s < num_keys) p.select(1, h).select(1, t).select(1, s).fill_(1);
        }
    }
    if (const auto visible = in.mask.visible(num_queries, num_keys))
      p = p.masked_fill(visible->logical_not(), 0);
    return p / p.sum(-1, /*keepdim=*/true).clamp_min(1);
  }
  at::Tensor log_weights(const nn::MixInput& in) override { return weights(in).log(); }
  std::vector<std::pair<std::string, at::Tensor>> head_values() const override {
    return {{"alpha", at::arange(1, kHeads + 1)}, {"gain", at::full({1}, 0.5)}};
  }

 private:
  nn::HeadLayout layout_;
  nn::Options options_;
  std::vector<std::vector<int64_t>> offsets_;
};

std::shared_ptr<models::Encoder> pattern_encoder(std::vector<std::vector<int64_t>> offsets) {
  auto encoder = tiny_encoder();
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    nn::Attention& attention = encoder->attention(layer);
    attention.set_mixer(std::make_shared<PatternMixer>(attention.shape().layout, offsets));
  }
  return encoder;
}

// The definitions, in plain loops over one layer's full weights.
struct Plain {
  std::vector<double> density, entropy, merging;
  std::vector<std::vector<double>> at_offset;
  double diversity = 0;
};

// [T,S] of every head of one text, all of it visible.
using TextHeads = std::vector<at::Tensor>;

double entropy_of(const std::vector<double>& p) {
  double sum = 0;
  for (double x : p) sum -= x > 0 ? x * std::log(x) : 0;
  return sum / std::log(static_cast<double>(p.size()));
}

Plain plain_statistics(const std::vector<TextHeads>& texts,
                       const std::vector<std::vector<TokenRange>>& groups, int64_t reach) {
  Plain out;
  out.density.assign(kHeads, 0);
  out.entropy.assign(kHeads, 0);
  out.merging.assign(kHeads, 0);
  out.at_offset.assign(2 * reach + 1, std::vector<double>(kHeads, 0));
  std::vector<double> neighbours(2 * reach + 1, 0);
  double rows = 0, num_groups = 0;
  for (size_t text = 0; text < texts.size(); ++text) {
    const int64_t n = texts[text][0].size(0);
    std::vector<double> nonzero(kHeads, 0);
    for (int64_t t = 0; t < n; ++t) {
      std::vector<double> mean(n, 0);
      double mean_entropy = 0;
      for (int64_t h = 0; h < kHeads; ++h) {
        const at::Tensor row = texts[text][h][t].contiguous();
        const double* p = row.const_data_ptr<double>();
        for (int64_t s = 0; s < n; ++s) {
          nonzero[h] += p[s] != 0;
          mean[s] += p[s] / kHeads;
        }
        if (n < 2) continue;
        const double entropy = entropy_of({p, p + n});
        out.entropy[h] += entropy;
        mean_entropy += entropy / kHeads;
      }
      if (n < 2) continue;
      ++rows;
      out.diversity += entropy_of(mean) - mean_entropy;
    }
    for (int64_t h = 0; h < kHeads; ++h)
      out.density[h] += nonzero[h] / static_cast<double>(n * n * texts.size());
    for (int64_t o = -reach; o <= reach; ++o)
      for (int64_t t = std::max<int64_t>(0, -o); t < std::min(n, n - o); ++t) {
        ++neighbours[o + reach];
        for (int64_t h = 0; h < kHeads; ++h)
          out.at_offset[o + reach][h] += texts[text][h][t][t + o].item<double>();
      }
    for (const TokenRange& group : groups[text]) {
      ++num_groups;
      for (int64_t h = 0; h < kHeads; ++h) {
        double largest = 0;
        for (int64_t t = group.begin; t < group.end; ++t) {
          double mass = 0;
          for (int64_t s = group.begin; s < group.end; ++s)
            if (s != t) mass += texts[text][h][t][s].item<double>();
          largest = std::max(largest, mass);
        }
        out.merging[h] += largest;
      }
    }
  }
  for (int64_t h = 0; h < kHeads; ++h) {
    out.entropy[h] /= rows;
    out.merging[h] /= num_groups;
    for (size_t o = 0; o < out.at_offset.size(); ++o) out.at_offset[o][h] /= neighbours[o];
  }
  out.diversity /= rows;
  return out;
}

// Every text of the batch: its unpadded weights in one layer.
std::vector<TextHeads> texts_of(models::Encoder& model, const StatisticsInput& input,
                                int64_t wanted_layer) {
  std::vector<TextHeads> texts;
  visit_weights(model, input.input, [&](int64_t layer, const at::Tensor& w) {
    if (layer != wanted_layer) return;
    for (int64_t b = 0; b < w.size(0); ++b) {
      const int64_t n = input.input.attention_mask
                            ? (*input.input.attention_mask)[b].sum().item<int64_t>()
                            : w.size(2);
      TextHeads heads;
      for (int64_t h = 0; h < w.size(1); ++h)
        heads.push_back(w[b][h].narrow(0, 0, n).narrow(1, 0, n).to(at::kDouble));
      texts.push_back(heads);
    }
  });
  return texts;
}

void expect_near(double a, double b, double tolerance, const std::string& what) {
  if (std::isnan(b))
    EXPECT_TRUE(std::isnan(a)) << what;
  else
    EXPECT_NEAR(a, b, tolerance) << what;
}

void expect_plain(models::Encoder& model, const StatisticsInput& input, double tolerance) {
  constexpr int64_t kReach = 3;
  const HeadStatistics streamed = head_statistics(model, {input}, {.reach = kReach});
  const std::vector<std::vector<TokenRange>> groups =
      input.groups.empty() ? std::vector<std::vector<TokenRange>>(input.input.input_ids.size(0))
                           : input.groups;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::vector<TextHeads> texts = texts_of(model, input, layer);
    const Plain plain = plain_statistics(texts, groups, kReach);
    expect_near(streamed.diversity[layer], plain.diversity, tolerance, "diversity");
    for (int64_t h = 0; h < kHeads; ++h) {
      expect_near(streamed.density[layer][h], plain.density[h], tolerance, "density");
      expect_near(streamed.entropy[layer][h], plain.entropy[h], tolerance, "entropy");
      expect_near(streamed.subword_merging[layer][h], plain.merging[h], tolerance, "merging");
      for (size_t o = 0; o < plain.at_offset.size(); ++o)
        expect_near(streamed.at_offset[o][layer][h], plain.at_offset[o][h], tolerance,
                    concat("offset ", streamed.offsets[o]));
    }
  }
}

TEST(HeadStatistics, AreTheDefinitionsForPaddedTextsAndSubwords) {
  StatisticsInput input = random_input(4, 9, /*padded=*/true);  // 9, 7, 5 and 3 tokens
  input.groups = {{{1, 3}, {4, 8}}, {{0, 2}}, {}, {{0, 3}}};
  expect_plain(*tiny_encoder(), input, 1e-10);
  for (const char* map : {"softmax", "exp", "relu", "cosformer"})
    expect_plain(*tiny_encoder("hedgehog", map), input, 1e-8);
  expect_plain(*pattern_encoder({{-1, 0, 1}, {}, {2}, {0}}), input, 1e-12);
}

TEST(HeadStatistics, OneTokenHasADensityAndNoEntropy) {
  const StatisticsInput input = random_input(2, 1, false);
  expect_plain(*tiny_encoder(), input, 1e-12);
  const HeadStatistics all = head_statistics(*tiny_encoder(), {input});
  EXPECT_EQ(all.density[0][0], 1);
  EXPECT_TRUE(std::isnan(all.entropy[0][0]));
  EXPECT_TRUE(std::isnan(all.diversity[0]));
  EXPECT_TRUE(std::isnan(all.subword_merging[0][0]));
  EXPECT_TRUE(std::isnan(all.at_offset[0][0][0]));
  EXPECT_TRUE(subword_merging_heads(all).empty());
}

TEST(HeadStatistics, BlocksOfQueriesGiveTheSameAsTheWhole) {
  // 2 x 500 keys: blocks of 65 queries; groups lie across their borders.
  StatisticsInput input = random_input(2, 500, /*padded=*/true);
  input.groups = {{{63, 68}, {129, 132}, {498, 500}}, {{64, 66}}};
  expect_plain(*tiny_encoder(), input, 1e-9);
  expect_plain(*tiny_encoder("hedgehog", "cosformer"), input, 1e-7);
  expect_plain(*pattern_encoder({{-1}, {1, 3}, {-2, 2}, {}}), input, 1e-9);
}

TEST(HeadStatistics, DoNotDependOnTheTextsBeside) {
  auto model = tiny_encoder();
  StatisticsInput together = random_input(3, 12, /*padded=*/true);
  together.groups = {{{2, 5}}, {{0, 2}, {7, 10}}, {}};
  std::vector<StatisticsInput> apart(3);
  for (int64_t r = 0; r < 3; ++r) {
    apart[r].input.input_ids = together.input.input_ids[r].narrow(0, 0, 12 - 2 * r).unsqueeze(0);
    apart[r].groups = {together.groups[r]};
  }
  const HeadStatistics a = head_statistics(*model, {together}), b = head_statistics(*model, apart);
  EXPECT_EQ(a.num_texts, 3);
  EXPECT_EQ(b.num_texts, 3);
  EXPECT_EQ(a.num_queries, 12 + 10 + 8);
  EXPECT_EQ(b.num_queries, 30);
  EXPECT_EQ(a.num_groups, 3);
  EXPECT_NEAR(a.uniform_weight, 3.0 / 30, 1e-12);
  EXPECT_NEAR(b.uniform_weight, 3.0 / 30, 1e-12);
  EXPECT_EQ(a.density_counts, b.density_counts);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_NEAR(a.diversity[layer], b.diversity[layer], 1e-10);
    for (int64_t h = 0; h < kHeads; ++h) {
      EXPECT_NEAR(a.density[layer][h], b.density[layer][h], 1e-12);
      EXPECT_NEAR(a.entropy[layer][h], b.entropy[layer][h], 1e-10);
      EXPECT_NEAR(a.subword_merging[layer][h], b.subword_merging[layer][h], 1e-10);
      for (size_t o = 0; o < a.offsets.size(); ++o)
        EXPECT_NEAR(a.at_offset[o][layer][h], b.at_offset[o][layer][h], 1e-10);
    }
  }
}

TEST(HeadStatistics, KnownAnswers) {
  // Heads: the token itself, all keys alike, the token before, the token after.
  auto model = pattern_encoder({{0}, {}, {-1}, {1}});
  StatisticsInput input = random_input(1, 8, false);
  input.groups = {{{3, 5}}};
  const HeadStatistics s = head_statistics(*model, {input}, {.reach = 2, .density_bins = 4});
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::vector<double> density = {1.0 / 8, 1, 7.0 / 64, 7.0 / 64};
    for (int64_t h = 0; h < kHeads; ++h) EXPECT_NEAR(s.density[layer][h], density[h], 1e-12);
    EXPECT_EQ(s.density_counts[layer], (std::vector<int64_t>{3, 0, 0, 1}));
    EXPECT_NEAR(s.entropy[layer][0], 0, 1e-12);
    EXPECT_NEAR(s.entropy[layer][1], 1, 1e-12);
    const auto at = [&](int64_t offset, int64_t h) { return s.at_offset[offset + 2][layer][h]; };
    EXPECT_NEAR(at(0, 0), 1, 1e-12);
    EXPECT_NEAR(at(-1, 0), 0, 1e-12);
    for (int64_t offset = -2; offset <= 2; ++offset) EXPECT_NEAR(at(offset, 1), 1.0 / 8, 1e-12);
    EXPECT_NEAR(at(-1, 2), 1, 1e-12);
    EXPECT_NEAR(at(1, 2), 0, 1e-12);
    EXPECT_NEAR(at(1, 3), 1, 1e-12);
    EXPECT_NEAR(s.subword_merging[layer][0], 0, 1e-12);
    EXPECT_NEAR(s.subword_merging[layer][1], 1.0 / 8, 1e-12);
    EXPECT_NEAR(s.subword_merging[layer][2], 1, 1e-12);
    EXPECT_NEAR(s.subword_merging[layer][3], 1, 1e-12);
  }
  const std::vector<NamedHead> positional = positional_heads(s);
  ASSERT_EQ(positional.size(), 8u);
  EXPECT_EQ(positional[0].layer, 0);
  EXPECT_EQ(positional[0].head, 2);
  EXPECT_EQ(positional[0].offset, -1);
  EXPECT_EQ(positional[1].head, 3);
  EXPECT_EQ(positional[1].offset, 1);
  EXPECT_EQ(positional[4].head, 1);
  EXPECT_EQ(positional.back().head, 0);
  EXPECT_EQ(subword_merging_heads(s).back().head, 0);
}

TEST(HeadStatistics, DiversityOfEqualHeadsIsZeroAndOfDisjointOnesTheLogOfTheirNumber) {
  const StatisticsInput input = random_input(1, 16, false);
  const HeadStatistics same = head_statistics(*pattern_encoder({{0}, {0}, {0}, {0}}), {input});
  const HeadStatistics alike = head_statistics(*pattern_encoder({{}, {}, {}, {}}), {input});
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_NEAR(same.diversity[layer], 0, 1e-12);
    EXPECT_NEAR(alike.diversity[layer], 0, 1e-12);
  }
  // Four heads on four keys: H(mean) = log 4 in units of log 16, for the 13 queries that have all
  // keys; heads without a key at the end give 3/4, 2/4, 1/4 of the mean's mass.
  const HeadStatistics apart = head_statistics(*pattern_encoder({{0}, {1}, {2}, {3}}), {input});
  double expected = 13 * 0.5;
  for (int heads = 1; heads <= 3; ++heads) expected += heads / 4.0 * 0.5;
  EXPECT_NEAR(apart.diversity[0], expected / 16, 1e-12);
}

TEST(HeadStatistics, ValuesThatMixersDeclare) {
  auto model = pattern_encoder({{0}, {0}, {0}, {0}});
  nn::Attention& first = model->attention(0);
  first.set_mixer(nn::make_mixer("softmax", first.shape().layout));
  const HeadStatistics s = head_statistics(*model, {random_input(1, 4, false)});
  ASSERT_EQ(s.head_values.size(), 2u);
  for (double value : s.head_values.at("alpha")[0]) EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(s.head_values.at("alpha")[1], (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(s.head_values.at("gain")[1], (std::vector<double>(4, 0.5)));
  EXPECT_TRUE(head_statistics(*tiny_encoder(), {}).head_values.empty());
}

TEST(HeadStatistics, RefusesGroupsThatAreNotInTheirRow) {
  auto model = tiny_encoder();
  StatisticsInput input = random_input(2, 6, false);
  const auto refused = [&](std::vector<std::vector<TokenRange>> groups) {
    input.groups = std::move(groups);
    EXPECT_THROW(head_statistics(*model, {input}), Error);
  };
  refused({{}});
  refused({{}, {{4, 7}}});
  refused({{{-1, 2}}, {}});
  refused({{{2, 3}}, {}});
  input.groups.clear();
  EXPECT_THROW(head_statistics(*model, {input}, {.reach = -1}), Error);
}

TEST(SubwordGroups, AreWordsOfSeveralTokens) {
  using Groups = std::vector<TokenRange>;
  EXPECT_EQ(subword_groups({}), Groups{});
  EXPECT_EQ(subword_groups({"[CLS]", "a", "b", "[SEP]"}), Groups{});
  EXPECT_EQ(subword_groups({"[CLS]", "he", "##dge", "##row", "a", "##b", "[SEP]"}),
            (Groups{{1, 4}, {4, 6}}));
  EXPECT_EQ(subword_groups({"a", "##b"}), (Groups{{0, 2}}));
  EXPECT_EQ(subword_groups({"##", "##"}), Groups{}) << "signs, not continuations";
}

}  // namespace
}  // namespace hedgerow::analysis
