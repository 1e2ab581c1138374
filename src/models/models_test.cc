// Encoders, model folders and pooling. Equality with Transformers: tests/python/test_models.py.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "base/atomic_file.h"
#include "formats/checkpoint.h"
#include "formats/json.h"
#include "hedgerow/error.h"
#include "io/tensors.h"
#include "models/model_folder.h"

namespace hedgerow::models {
namespace {

namespace fs = std::filesystem;
using formats::Json;

EncoderConfig tiny_config() {
  EncoderConfig c;
  c.architecture = "bert";
  c.vocab_size = 23;
  c.hidden_size = 12;
  c.num_layers = 3;
  c.num_heads = 2;
  c.intermediate_size = 20;
  c.max_positions = 16;
  c.type_vocab_size = 2;
  return c;
}

Json config_json(const EncoderConfig& c, const std::string& architecture = "BertModel") {
  return {{"model_type", "bert"},
          {"architectures", {architecture}},
          {"vocab_size", c.vocab_size},
          {"hidden_size", c.hidden_size},
          {"num_hidden_layers", c.num_layers},
          {"num_attention_heads", c.num_heads},
          {"intermediate_size", c.intermediate_size},
          {"max_position_embeddings", c.max_positions},
          {"type_vocab_size", c.type_vocab_size},
          {"unknown_to_us", {{"kept", true}}}};
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

class Models : public ::testing::Test {
 protected:
  Models() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::temp_directory_path() / concat("hedgerow_models_", test->name());
    fs::remove_all(root_);
    fs::create_directories(root_ / "source");
    fs::create_directories(root_ / "out");
    at::manual_seed(9);
  }
  ~Models() override { fs::remove_all(root_); }

  std::string folder(const char* name) const { return (root_ / name).string(); }
  void write(const std::string& name, const Json& value) const {
    fs::create_directories((root_ / name).parent_path());
    write_file_atomically((root_ / name).string(), formats::dump_json(value));
  }
  Json read(const std::string& name) const {
    return formats::read_json_file((root_ / name).string());
  }

  // A random model in folder "source".
  LoadedModel make_source(const EncoderConfig& config = tiny_config(),
                          const std::string& architecture = "BertModel") const {
    write("source/config.json", config_json(config, architecture));
    LoadedModel model;
    model.encoder = std::make_shared<Encoder>(config);
    const at::NoGradGuard no_grad;
    for (at::Tensor& p : model.encoder->parameters()) p.add_(at::randn_like(p), 0.3);
    save_model(model, folder("source"), folder("source"));
    return load_model(folder("source"));
  }

  fs::path root_;
};

EncoderInput some_input(int64_t length = 7) {
  EncoderInput input;
  input.input_ids = at::randint(0, 23, {2, length}, at::kLong);
  input.attention_mask = at::ones({2, length}, at::kLong);
  input.attention_mask->select(0, 1).narrow(0, length - 2, 2).fill_(0);
  return input;
}

TEST_F(Models, SaveAndLoadGiveTheSameModel) {
  const LoadedModel model = make_source();
  const EncoderInput input = some_input();
  save_model(model, folder("source"), folder("out"));
  EXPECT_EQ(read("out/config.json")["model_type"], "bert");
  EXPECT_EQ(read("out/config.json")["unknown_to_us"]["kept"], true);
  const LoadedModel again = load_model(folder("out"));
  EXPECT_TRUE(at::equal(again.encoder->forward(input).last_hidden_state,
                        model.encoder->forward(input).last_hidden_state));
}

TEST_F(Models, ConvertedFolderNamesItsMixers) {
  const LoadedModel model = make_source();
  const auto layout = model.encoder->attention(0).shape().layout;
  model.encoder->attention(1).set_mixer(nn::make_mixer("hedgehog", layout, {{"bias", true}}));
  model.encoder->attention(2).set_mixer(nn::make_mixer(
      "hedgehog", layout, {{"map", std::string("performer")}, {"seed", int64_t{5}}}));
  save_model(model, folder("source"), folder("out"));
  const Json config = read("out/config.json");
  EXPECT_EQ(config["model_type"], "hedgerow_bert");
  EXPECT_EQ(config["hedgerow"]["format"], 1);
  EXPECT_EQ(config["hedgerow"]["layers"][0]["mixer"], "softmax");
  EXPECT_EQ(config["hedgerow"]["layers"][1]["mixer"], "hedgehog");
  EXPECT_EQ(config["hedgerow"]["layers"][1]["map"], "softmax");
  const auto weights = formats::Checkpoint::open(folder("out"));
  for (const char* name : {"wq", "wk", "bq", "bk"}) {
    EXPECT_NE(weights.find(concat("encoder.layer.1.attention.hedgerow.", name)), nullptr) << name;
  }
  EXPECT_NE(weights.find("encoder.layer.2.attention.hedgerow.wq"), nullptr);
  EXPECT_EQ(weights.find("encoder.layer.0.attention.hedgerow.wq"), nullptr);
  const EncoderInput input = some_input();
  const LoadedModel again = load_model(folder("out"));
  EXPECT_TRUE(at::equal(again.encoder->forward(input).last_hidden_state,
                        model.encoder->forward(input).last_hidden_state));
  // Converted back, it is a plain folder again.
  for (int64_t i = 0; i < 3; ++i)
    again.encoder->attention(i).set_mixer(nn::make_mixer("softmax", layout));
  fs::create_directories(root_ / "back");
  save_model(again, folder("out"), folder("back"));
  EXPECT_EQ(read("back/config.json")["model_type"], "bert");
  EXPECT_FALSE(read("back/config.json").contains("hedgerow"));
  EXPECT_NO_THROW(load_model(folder("back")));
}

TEST_F(Models, ConvertedFolderKeepsAlphas) {
  const LoadedModel model = make_source();
  const auto layout = model.encoder->attention(0).shape().layout;
  model.encoder->attention(0).set_mixer(
      nn::make_mixer("entmax", layout, {{"start", std::string("spread")}}));
  model.encoder->attention(1).set_mixer(
      nn::make_mixer("entmax", layout, {{"alpha", std::string("1.5")}}));
  model.encoder->attention(2).set_mixer(
      nn::make_mixer("entmax", layout, {{"share", std::string("layer")}, {"length_scale", true}}));
  save_model(model, folder("source"), folder("out"));
  const Json layers = read("out/config.json")["hedgerow"]["layers"];
  EXPECT_EQ(layers[0]["mixer"], "entmax");
  EXPECT_EQ(layers[1]["alpha"], "1.5");
  EXPECT_EQ(layers[2]["length_scale"], true);
  const auto weights = formats::Checkpoint::open(folder("out"));
  EXPECT_NE(weights.find("encoder.layer.0.attention.hedgerow.alpha_raw"), nullptr);
  EXPECT_EQ(weights.find("encoder.layer.1.attention.hedgerow.alpha_raw"), nullptr);
  EXPECT_NE(weights.find("encoder.layer.2.attention.hedgerow.scale_beta"), nullptr);
  const EncoderInput input = some_input();
  const LoadedModel again = load_model(folder("out"));
  EXPECT_TRUE(at::equal(again.encoder->forward(input).last_hidden_state,
                        model.encoder->forward(input).last_hidden_state));
  // A layer whose alpha is missing is no model.
  Json config = read("out/config.json");
  config["hedgerow"]["layers"][1]["alpha"] = "learned";
  write("out/config.json", config);
  EXPECT_NE(error_of([&] { load_model(folder("out")); }).find("alpha"), std::string::npos);
}

TEST_F(Models, RefusesConvertedFoldersThatItDoesNotUnderstand) {
  const LoadedModel model = make_source();
  const auto layout = model.encoder->attention(0).shape().layout;
  for (int64_t i = 0; i < 3; ++i)
    model.encoder->attention(i).set_mixer(
        nn::make_mixer("hedgehog", layout, {{"map", std::string("exp")}}));
  save_model(model, folder("source"), folder("out"));
  const Json good = read("out/config.json");
  const auto error_with = [&](const std::function<void(Json&)>& change) {
    Json config = good;
    change(config);
    write("out/config.json", config);
    return error_of([&] { load_model(folder("out")); });
  };
  EXPECT_EQ(error_with([](Json&) {}), "");
  EXPECT_NE(error_with([](Json& c) { c["hedgerow"]["format"] = 2; }).find("format 1; got 2"),
            std::string::npos);
  EXPECT_NE(
      error_with([](Json& c) { c["hedgerow"]["layers"][1]["mixer"] = "rebate"; }).find("rebate"),
      std::string::npos);
  EXPECT_NE(error_with([](Json& c) { c["hedgerow"]["layers"].erase(2); }).find("got 2"),
            std::string::npos);
  EXPECT_NE(error_with([](Json& c) { c["hedgerow"]["layers"][0]["colour"] = 1; }).find("colour"),
            std::string::npos);
  EXPECT_NE(error_with([](Json& c) { c["hedgerow"]["hue"] = 1; }).find("hue"), std::string::npos);
  EXPECT_NE(error_with([](Json& c) { c["model_type"] = "bert"; }).find("hedgerow"),
            std::string::npos);
  EXPECT_NE(error_with([](Json& c) { c.erase("hedgerow"); }).find("hedgerow"), std::string::npos);
  // Another map of the same shapes would load silently.
  EXPECT_NE(
      error_with([](Json& c) { c["hedgerow"]["layers"][0]["map"] = "softmax"; }).find("made with"),
      std::string::npos);
  EXPECT_NE(error_with([](Json& c) { c["hedgerow"]["layers"][0]["width"] = 4; }), "");
  write("out/config.json", good);
  LoadOptions options;
  options.expected["map"] = std::string("softmax");
  EXPECT_NE(error_of([&] {
              load_model(folder("out"), options);
            }).find("made with map exp; asked for softmax"),
            std::string::npos);
  options.expected["map"] = std::string("exp");
  EXPECT_NO_THROW(load_model(folder("out"), options));
}

TEST_F(Models, ConfigThatContradictsTheTensors) {
  make_source();
  const Json good = read("source/config.json");
  const auto error_with = [&](const char* key, const Json& value) {
    Json config = good;
    config[key] = value;
    write("source/config.json", config);
    return error_of([&] { load_model(folder("source")); });
  };
  const std::string more = error_with("num_hidden_layers", 4);
  EXPECT_NE(more.find("16 tensors missing: encoder.layer.3.attention.self.query.weight"),
            std::string::npos)
      << more;
  EXPECT_NE(more.find("encoder.layer.3.output.LayerNorm.bias"), std::string::npos) << more;
  EXPECT_NE(error_with("num_hidden_layers", 2).find("16 tensors unexpected: encoder.layer.2."),
            std::string::npos);
  EXPECT_NE(error_with("vocab_size", 24).find("must be [24, 12], got [23, 12]"), std::string::npos);
  for (const char* key : {"num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size"}) {
    const std::string huge =
        error_with(key, std::string(key) == "num_hidden_layers" ? 9000 : 9000000);
    EXPECT_NE(huge.find("the sizes contradict the tensors"), std::string::npos) << key << huge;
  }
  EXPECT_NE(error_with("num_attention_heads", 5).find("multiple"), std::string::npos);
  EXPECT_NE(error_with("hidden_act", "sigh").find("known: gelu"), std::string::npos);
  EXPECT_NE(error_with("model_type", "bart").find("known: bert, hedgerow_bert"), std::string::npos);
  EXPECT_NE(error_with("position_embedding_type", "relative_key").find("absolute"),
            std::string::npos);
  EXPECT_NE(error_with("hidden_size", "wide").find("hidden_size"), std::string::npos);
}

TEST_F(Models, InputsThatTheModelCannotTake) {
  const LoadedModel model = make_source();
  const auto error_with = [&](const std::function<void(EncoderInput&)>& change) {
    EncoderInput input = some_input();
    change(input);
    return error_of([&] { model.encoder->forward(input); });
  };
  EXPECT_EQ(error_with([](EncoderInput&) {}), "");
  EXPECT_EQ(error_with([](EncoderInput& in) { in = some_input(17); }),
            "encoder: a text must have at most 16 tokens, the model's positions; got 17");
  EXPECT_EQ(error_with([](EncoderInput& in) { in.input_ids[0][0] = 23; }),
            "encoder: input_ids must be in [0, 23), the vocabulary; got 23");
  EXPECT_EQ(error_with([](EncoderInput& in) { in.input_ids[0][0] = -1; }),
            "encoder: input_ids must be in [0, 23), the vocabulary; got -1");
  EXPECT_NE(error_with([](EncoderInput& in) {
              in.attention_mask = at::ones({2, 6}, at::kLong);
            }),
            "");
  EXPECT_NE(error_with([](EncoderInput& in) {
              in.token_type_ids = at::full({2, 7}, 2, at::kLong);
            }),
            "");
  EXPECT_NE(error_with([](EncoderInput& in) { in.token_type_ids = at::ones({2, 7}); }), "");
  EXPECT_NE(error_with([](EncoderInput& in) { in.position_ids = at::full({7}, 16, at::kLong); }),
            "");
}

TEST_F(Models, PositionsShiftWithTheirIds) {
  const LoadedModel model = make_source();
  EncoderInput input = some_input();
  const at::Tensor plain = model.encoder->forward(input).last_hidden_state;
  input.position_ids = at::arange(7, at::kLong);
  EXPECT_TRUE(at::equal(model.encoder->forward(input).last_hidden_state, plain));
  input.position_ids = at::arange(7, at::kLong).expand({2, 7});
  EXPECT_TRUE(at::equal(model.encoder->forward(input).last_hidden_state, plain));
  input.position_ids = at::arange(9, 16, at::kLong);
  EXPECT_FALSE(at::allclose(model.encoder->forward(input).last_hidden_state, plain));
}

TEST_F(Models, PaddingIsNeverRead) {
  for (const char* kind : {"softmax", "hedgehog", "entmax", "talking-heads"}) {
    const LoadedModel model = make_source();
    const auto layout = model.encoder->attention(0).shape().layout;
    for (int64_t i = 0; i < 3; ++i)
      model.encoder->attention(i).set_mixer(nn::make_mixer(kind, layout));
    EncoderInput input = some_input();
    const at::Tensor before = model.encoder->forward(input).last_hidden_state[1].narrow(0, 0, 5);
    input.input_ids[1][6] = 11;
    input.input_ids[1][5] = 3;
    const at::Tensor after = model.encoder->forward(input).last_hidden_state[1].narrow(0, 0, 5);
    EXPECT_TRUE(at::equal(before, after)) << kind;
  }
}

TEST_F(Models, TalkingHeadsStartAsTheModelThatTheyAreIn) {
  const LoadedModel model = make_source();
  const EncoderInput input = some_input();
  model.encoder->to(at::kDouble);
  const at::Tensor before = model.encoder->forward(input).last_hidden_state;
  const auto layout = model.encoder->attention(0).shape().layout;
  for (int64_t i = 0; i < 3; ++i) {
    model.encoder->attention(i).set_mixer(
        nn::make_mixer("talking-heads", layout, {{"dynamic", std::string("all")}}));
  }
  model.encoder->to(at::kDouble);
  const at::Tensor after = model.encoder->forward(input).last_hidden_state;
  EXPECT_LE((after - before).abs().max().item<double>(), 1e-12);
}

// Heads that the mixer does not have are not projected, saved or asked for.
TEST_F(Models, FewerHeadsAreSavedAndLoaded) {
  const LoadedModel model = make_source();
  const EncoderInput input = some_input();
  const auto layout = model.encoder->attention(0).shape().layout;
  const std::map<std::string, nn::OptionValue> options = {{"key_heads", int64_t{1}},
                                                          {"value_heads", int64_t{1}}};
  nn::Attention& attention = model.encoder->attention(1);
  attention.set_mixer_and_projections(nn::make_mixer("talking-heads", layout, options));
  EXPECT_EQ(attention.query().weight.size(0), layout.head_dim);
  EXPECT_EQ(attention.output().weight.size(1), layout.head_dim);
  const at::NoGradGuard no_grad;
  for (at::Tensor& p : attention.parameters()) p.normal_(0, 0.2);
  const at::Tensor before = model.encoder->forward(input).last_hidden_state;
  fs::create_directories(folder("out"));
  save_model(model, folder("source"), folder("out"));
  const LoadedModel again = load_model(folder("out"));
  EXPECT_TRUE(at::equal(again.encoder->forward(input).last_hidden_state, before));
}

TEST_F(Models, GradientsReachEveryParameterOfTheBody) {
  EncoderConfig config = tiny_config();
  config.has_pooler = false;
  const LoadedModel model = make_source(config);
  const auto layout = model.encoder->attention(0).shape().layout;
  for (int64_t i = 0; i < 3; ++i)
    model.encoder->attention(i).set_mixer(nn::make_mixer("hedgehog", layout));
  model.encoder->forward(some_input()).last_hidden_state.square().sum().backward();
  for (const auto& item : model.encoder->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
    EXPECT_FALSE(item.value().grad().eq(0).all().item<bool>()) << item.key();
  }
}

TEST_F(Models, LowRankUpdatesMustBeMergedBeforeSaving) {
  const LoadedModel model = make_source();
  model.encoder->add_lora(2, 4);
  EXPECT_NE(error_of([&] { save_model(model, folder("source"), folder("out")); }).find("merged"),
            std::string::npos);
  model.encoder->merge_lora();
  EXPECT_NO_THROW(save_model(model, folder("source"), folder("out")));
}

TEST_F(Models, HeadsAreSavedWithTheirPrefix) {
  EncoderConfig config = tiny_config();
  config.head = EncoderHead::classification;
  config.num_labels = 2;
  const LoadedModel model = make_source(config, "BertForSequenceClassification");
  const auto weights = formats::Checkpoint::open(folder("source"));
  EXPECT_NE(weights.find("bert.embeddings.word_embeddings.weight"), nullptr);
  EXPECT_NE(weights.find("classifier.weight"), nullptr);
  EXPECT_EQ(model.encoder->forward(some_input()).logits->sizes(), at::IntArrayRef({2, 2}));
}

TEST_F(Models, CompanionsTravel) {
  const LoadedModel model = make_source();
  write("source/tokenizer.json", {{"version", "1.0"}});
  write("source/modules.json", {{{"type", "a.Transformer"}, {"path", ""}},
                                {{"type", "a.Pooling"}, {"path", "1_Pooling"}},
                                {{"type", "a.Normalize"}, {"path", "2_Normalize"}}});
  write("source/1_Pooling/config.json", {{"pooling_mode_max_tokens", true}});
  write("source/sentence_bert_config.json", {{"max_seq_length", 9}});
  save_model(model, folder("source"), folder("out"));
  for (const char* name :
       {"tokenizer.json", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"}) {
    EXPECT_EQ(read(concat("out/", name)), read(concat("source/", name))) << name;
  }
  const Pooling pooling = load_model(folder("out")).pooling;
  EXPECT_EQ(pooling.kind, Pooling::Kind::max);
  EXPECT_TRUE(pooling.normalize);
  EXPECT_EQ(pooling.max_length, 9);
}

TEST_F(Models, PoolingOfSentenceTransformers) {
  const auto read_one = [&](const Json& pooling, const Json& more = Json::array()) {
    Json modules = {{{"type", "a.Transformer"}, {"path", ""}},
                    {{"type", "a.Pooling"}, {"path", "1_Pooling"}}};
    for (const Json& module : more) modules.push_back(module);
    write("source/modules.json", modules);
    write("source/1_Pooling/config.json", pooling);
    return read_pooling(folder("source"));
  };
  EXPECT_EQ(read_pooling(folder("source")).kind, Pooling::Kind::mean);  // no files
  EXPECT_EQ(read_one({{"pooling_mode", "cls"}}).kind, Pooling::Kind::cls);
  EXPECT_EQ(read_one({{"pooling_mode_mean_tokens", true}}).kind, Pooling::Kind::mean);
  EXPECT_TRUE(read_one({{"pooling_mode_mean_tokens", true}}).refused.empty());
  EXPECT_NE(read_one({{"pooling_mode_lasttoken", true}}).refused.find("lasttoken"),
            std::string::npos);
  EXPECT_NE(read_one({{"pooling_mode_cls_token", true}, {"pooling_mode_max_tokens", true}})
                .refused.find("cls + max"),
            std::string::npos);
  EXPECT_NE(read_one({{"pooling_mode", "cls"}}, {{{"type", "a.Dense"}, {"path", "2_Dense"}}})
                .refused.find("Dense"),
            std::string::npos);
}

TEST(Pool, KindsUnderAMask) {
  const at::Tensor hidden =
      at::tensor({1., 2., 3., 4., 5., 6., 9., 9., 7., 1., 9., 9.}).view({2, 3, 2});
  const at::Tensor mask = at::tensor({1, 1, 1, 0, 1, 0}, at::kLong).view({2, 3});
  Pooling pooling;
  const auto expect = [&](std::vector<double> values) {
    const at::Tensor pooled = pool(pooling, hidden.to(at::kDouble), mask);
    EXPECT_TRUE(at::allclose(pooled, at::tensor(values, at::kDouble).view({2, 2}))) << pooled;
  };
  expect({3, 4, 7, 1});
  pooling.kind = Pooling::Kind::cls;
  expect({1, 2, 7, 1});
  pooling.kind = Pooling::Kind::max;
  expect({5, 6, 7, 1});
  pooling.normalize = true;
  const at::Tensor norms = pool(pooling, hidden.to(at::kDouble), mask).norm(2, -1);
  EXPECT_TRUE(at::allclose(norms, at::ones({2}, at::kDouble)));
  pooling.refused = "some reason";
  EXPECT_THROW(pool(pooling, hidden, mask), Error);
}

}  // namespace
}  // namespace hedgerow::models
