#include "convert/fewer_heads.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace hedgerow::convert {
namespace {

models::EncoderConfig tiny_config() {
  models::EncoderConfig c;
  c.architecture = "bert";
  c.vocab_size = 40;
  c.hidden_size = 24;
  c.num_layers = 2;
  c.num_heads = 4;
  c.intermediate_size = 32;
  c.max_positions = 32;
  c.type_vocab_size = 2;
  return c;
}

Corpus tiny_corpus() {
  Corpus corpus;
  corpus.prefix = {1};
  corpus.suffix = {2};
  at::manual_seed(6);
  for (int64_t i = 0; i < 50; ++i) {
    const at::Tensor ids = at::randint(3, 40, {3 + i % 9}, at::kLong);
    const int64_t* data = ids.const_data_ptr<int64_t>();
    corpus.train_bodies.emplace_back(data, data + ids.numel());
  }
  return corpus;
}

// A model whose head 3 is -2 times head 1 in queries, and equal in keys and values: three heads of
// keys and of values say all that four do.
TEST(FewerHeads, AreTheSameModelWhereHeadsRepeat) {
  at::manual_seed(7);
  models::Encoder teacher(tiny_config()), model(tiny_config());
  const at::NoGradGuard no_grad;
  for (at::Tensor& p : teacher.parameters()) p.normal_(0, 0.3);
  for (int64_t layer = 0; layer < 2; ++layer) {
    nn::Attention& a = teacher.attention(layer);
    for (nn::Linear* linear : {&a.query(), &a.key(), &a.value()}) {
      const double factor = linear == &a.query() ? -2.0 : 1.0;
      linear->weight.narrow(0, 18, 6).copy_(factor * linear->weight.narrow(0, 6, 6));
      linear->bias.narrow(0, 18, 6).copy_(factor * linear->bias.narrow(0, 6, 6));
    }
    a.output().weight.narrow(1, 18, 6).copy_(a.output().weight.narrow(1, 6, 6));
  }
  std::vector<at::Tensor> from = teacher.parameters(), to = model.parameters();
  for (size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
  models::EncoderInput input;
  input.input_ids = at::randint(3, 40, {3, 11}, at::kLong);
  const at::Tensor want = teacher.forward(input).last_hidden_state;

  start_fewer_heads(teacher, model, {0, 1}, tiny_corpus());  // nothing to do
  EXPECT_TRUE(at::equal(model.forward(input).last_hidden_state, want));

  for (int64_t layer = 0; layer < 2; ++layer) {
    nn::Attention& a = model.attention(layer);
    a.set_mixer_and_projections(
        nn::make_mixer("talking-heads", a.shape().layout,
                       {{"key_heads", int64_t{3}}, {"value_heads", int64_t{3}}}));
  }
  start_fewer_heads(teacher, model, {0, 1}, tiny_corpus());
  EXPECT_EQ(model.attention(0).query().weight.size(0), 18);
  const at::Tensor got = model.forward(input).last_hidden_state;
  EXPECT_LT((got - want).abs().max().item<double>(), 2e-3);

  // two key heads cannot, and come nearest of all choices only roughly
  for (int64_t layer = 0; layer < 2; ++layer) {
    nn::Attention& a = model.attention(layer);
    a.set_mixer_and_projections(nn::make_mixer(
        "talking-heads", teacher.attention(layer).shape().layout, {{"key_heads", int64_t{2}}}));
  }
  start_fewer_heads(teacher, model, {0, 1}, tiny_corpus());
  const double off = (model.forward(input).last_hidden_state - want).abs().max().item<double>();
  EXPECT_GT(off, 2e-3);
}

}  // namespace
}  // namespace hedgerow::convert
