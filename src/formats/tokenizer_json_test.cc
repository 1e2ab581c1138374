#include "formats/tokenizer_json.h"

#include "formats/test_files.h"

namespace hedgerow::formats {
namespace {

TokenizerJson parse(const std::string& text) {
  return parse_tokenizer_json(text, "tokenizer.json");
}

TEST(TokenizerJson, ReadsEveryPart) {
  const TokenizerJson parsed = parse(R"({
    "version": "1.0",
    "truncation": {"direction": "Left", "max_length": 128, "strategy": "OnlySecond", "stride": 4},
    "padding": {"strategy": {"Fixed": 64}, "direction": "Left", "pad_to_multiple_of": 8, "pad_id": 5,
                "pad_type_id": 1, "pad_token": "<pad>"},
    "added_tokens": [{"id": 3, "content": "<m>", "single_word": true, "lstrip": true, "rstrip": true,
                      "normalized": true, "special": true}, {"id": 4, "content": "x"}],
    "normalizer": {"type": "Lowercase"}, "pre_tokenizer": null, "decoder": {"type": "WordPiece"},
    "model": {"type": "WordPiece", "vocab": {"a": 0}}})");
  EXPECT_EQ(parsed.truncation->max_length, 128);
  EXPECT_EQ(parsed.truncation->stride, 4);
  EXPECT_EQ(parsed.truncation->side, Side::kLeft);
  EXPECT_EQ(parsed.truncation->strategy, TruncationStrategy::kOnlySecond);
  EXPECT_EQ(parsed.padding->fixed_length, 64);
  EXPECT_EQ(parsed.padding->multiple_of, 8);
  EXPECT_EQ(parsed.padding->side, Side::kLeft);
  EXPECT_EQ(parsed.padding->pad_id, 5);
  EXPECT_EQ(parsed.padding->pad_type_id, 1);
  EXPECT_EQ(parsed.padding->pad_token, "<pad>");
  ASSERT_EQ(parsed.added_tokens.size(), 2u);
  const AddedToken& token = parsed.added_tokens[0];
  EXPECT_TRUE(token.single_word && token.lstrip && token.rstrip && token.normalized &&
              token.special);
  EXPECT_EQ(token.id, 3);
  EXPECT_EQ(parsed.normalizer["type"], "Lowercase");
  EXPECT_TRUE(parsed.pre_tokenizer.is_null());
  EXPECT_TRUE(parsed.post_processor.is_null());
  EXPECT_EQ(read_vocabulary(parsed.model["vocab"], "x").size(), 1u);
}

TEST(TokenizerJson, NothingButAModelIsNeeded) {
  const TokenizerJson parsed = parse(R"({"model": {"vocab": {}}})");
  EXPECT_FALSE(parsed.truncation || parsed.padding);
  EXPECT_TRUE(parsed.added_tokens.empty());
}

TEST(TokenizerJson, ErrorsNameTheKey) {
  const auto fault = [](const std::string& key, const std::string& value) {
    return error_of([&] { parse("{\"model\":{},\"" + key + "\":" + value + "}"); });
  };
  EXPECT_MENTIONS(error_of([] { parse("{}"); }), "model");
  EXPECT_MENTIONS(error_of([] { parse("[]"); }), "object");
  EXPECT_MENTIONS(fault("normalizer", "3"), "normalizer");
  EXPECT_MENTIONS(fault("normalizer", "{}"), "type");
  EXPECT_MENTIONS(fault("decoder", R"({"type":1})"), "type");
  EXPECT_MENTIONS(fault("added_tokens", "{}"), "added_tokens");
  EXPECT_MENTIONS(fault("added_tokens", "[3]"), "added_tokens");
  EXPECT_MENTIONS(fault("added_tokens", R"([{"id":1}])"), "content");
  EXPECT_MENTIONS(fault("added_tokens", R"([{"id":-1,"content":"a"}])"), "id");
  EXPECT_MENTIONS(fault("added_tokens", R"([{"id":3000000000,"content":"a"}])"), "3000000000");
  EXPECT_MENTIONS(fault("added_tokens", R"([{"id":1,"content":"a","special":1}])"), "special");
  EXPECT_MENTIONS(fault("truncation", R"({"max_length":-1})"), "max_length");
  EXPECT_MENTIONS(fault("truncation", R"({"max_length":1,"strategy":"Never"})"), "Never");
  EXPECT_MENTIONS(fault("truncation", R"({"max_length":1,"direction":"Up"})"), "Up");
  EXPECT_MENTIONS(fault("padding", R"({"strategy":"Always"})"), "Always");
  EXPECT_MENTIONS(fault("padding", R"({"strategy":{"Fixed":-3}})"), "-3");
  EXPECT_MENTIONS(fault("padding", R"({"strategy":{}})"), "Fixed");
}

TEST(TokenizerJson, VocabularyIds) {
  const auto fault = [](const std::string& vocab) {
    return error_of([&] { read_vocabulary(parse_json(vocab, "v"), "v"); });
  };
  EXPECT_MENTIONS(fault(R"({"a":-1})"), "\"a\"");
  EXPECT_MENTIONS(fault(R"({"a":1.5})"), "1.5");
  EXPECT_MENTIONS(fault(R"({"a":4294967296})"), "4294967296");
  EXPECT_MENTIONS(fault(R"(["a"])"), "object");
}

}  // namespace
}  // namespace hedgerow::formats
