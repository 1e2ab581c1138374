#include "tokenizers/tokenizer.h"

#include <thread>

#include "tokenizers/test_pipeline.h"

namespace hedgerow::tokenizers {
namespace {

constexpr const char* kCafe = "Caf\xC3\xA9";

TEST(Tokenizer, IdsTokensAndOffsets) {
  const auto tokenizer = build(small_pipeline());
  const Encoding e = tokenizer->encode(concat("Unaffable ", kCafe, ". q\xE4\xB8\xAD"));
  EXPECT_EQ(e.ids, (Ids{2, 4, 5, 6, 7, 11, 1, 14, 3}));
  EXPECT_EQ(e.tokens, (Texts{"[CLS]", "un", "##aff", "##able", "cafe", ".", "[UNK]", "\xE4\xB8\xAD",
                             "[SEP]"}));
  EXPECT_EQ(
      pairs(e.offsets),
      (Pairs{{0, 0}, {0, 2}, {2, 5}, {5, 9}, {10, 14}, {14, 15}, {16, 17}, {17, 18}, {0, 0}}));
  EXPECT_EQ(e.type_ids, Ids(9, 0));
  EXPECT_EQ(e.attention_mask, std::vector<uint8_t>(9, 1));
  EXPECT_EQ(e.special_tokens_mask, (std::vector<uint8_t>{1, 0, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(tokenizer->encode("a b", {.add_special_tokens = false}).ids, (Ids{8, 9}));
  EXPECT_EQ(tokenizer->encode("").ids, (Ids{2, 3}));
  EXPECT_TRUE(tokenizer->encode(" \t", {.add_special_tokens = false}).ids.empty());
}

TEST(Tokenizer, TheUnknownTokenCoversTheWord) {
  const auto tokenizer = build(small_pipeline());
  const EncodeOptions plain{.add_special_tokens = false};
  const Encoding e = tokenizer->encode("unaffz abbbbbbbbb abbbbbbbbbb", plain);
  // Uncovered; 10 characters are the most a word may have; 11 are too many.
  EXPECT_EQ(e.ids, (Ids{1, 12, 13, 13, 13, 13, 13, 13, 13, 13, 1}));
  EXPECT_EQ(pairs(e.offsets)[0], (std::pair<uint32_t, uint32_t>{0, 6}));
  EXPECT_EQ(pairs(e.offsets)[10], (std::pair<uint32_t, uint32_t>{18, 29}));
  formats::Json without = small_pipeline();
  without["added_tokens"] = formats::Json::array();
  without["post_processor"] = nullptr;
  without["model"]["vocab"] = {{"a", 0}};
  EXPECT_EQ(build(without)->encode("a").ids, (Ids{0}));
  EXPECT_THROW(build(without)->encode("b"), Error);
}

TEST(Tokenizer, Pairs) {
  const auto tokenizer = build(small_pipeline());
  const Encoding e = tokenizer->encode_pair("a b", "c");
  EXPECT_EQ(e.ids, (Ids{2, 8, 9, 3, 10, 3}));
  EXPECT_EQ(e.type_ids, (Ids{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(pairs(e.offsets), (Pairs{{0, 0}, {0, 1}, {2, 3}, {0, 0}, {0, 1}, {0, 0}}));
  EXPECT_EQ(tokenizer->encode_pair("a b", "c", {.add_special_tokens = false}).type_ids,
            (Ids{0, 0, 1}));
  formats::Json bert = small_pipeline();
  bert["post_processor"] =
      formats::parse_json(R"({"type":"BertProcessing","sep":["[SEP]",3],"cls":["[CLS]",2]})", "x");
  const Encoding same = build(bert)->encode_pair("a b", "c");
  EXPECT_EQ(same.ids, e.ids);
  EXPECT_EQ(same.type_ids, e.type_ids);
  EXPECT_EQ(same.special_tokens_mask, e.special_tokens_mask);
  EXPECT_EQ(tokenizer->num_special_tokens(false), 2);
  EXPECT_EQ(tokenizer->num_special_tokens(true), 3);
}

TEST(Tokenizer, AddedTokensInText) {
  formats::Json pipeline = small_pipeline();
  pipeline["added_tokens"].push_back(formats::parse_json(
      R"({"id": 18, "content": "<m>", "lstrip": true, "rstrip": true, "normalized": false})", "x"));
  pipeline["added_tokens"].push_back(formats::parse_json(
      R"({"id": 19, "content": "Xy", "single_word": true, "normalized": true})", "x"));
  const auto tokenizer = build(pipeline);
  const EncodeOptions plain{.add_special_tokens = false};
  Encoding e = tokenizer->encode("a  <m>  b<m><m> [SEP]c", plain);
  EXPECT_EQ(e.tokens, (Texts{"a", "  <m>  ", "b", "<m>", "<m> ", "[SEP]", "c"}));
  EXPECT_EQ(pairs(e.offsets),
            (Pairs{{0, 1}, {1, 8}, {8, 9}, {9, 12}, {12, 16}, {16, 21}, {21, 22}}));
  e = tokenizer->encode("XY axy .xy.", plain);  // matched in lower case, not inside a word
  EXPECT_EQ(e.ids, (Ids{19, 1, 11, 19, 11}));
  EXPECT_EQ(tokenizer->vocab_size(), 20);
  EXPECT_EQ(tokenizer->token_to_id("<m>"), 18);
  EXPECT_EQ(tokenizer->id_to_token(19), "Xy");
  EXPECT_EQ(tokenizer->id_to_token(20), std::nullopt);
  EXPECT_EQ(tokenizer->token_to_id("nothing"), std::nullopt);
}

TEST(Tokenizer, AnAddedTokenThatNormalizesToNothingCutsEverywhere) {
  formats::Json pipeline = small_pipeline();
  pipeline["added_tokens"].push_back(
      formats::parse_json("{\"id\": 18, \"content\": \"\xCC\x81\", \"normalized\": true}", "x"));
  EXPECT_EQ(build(pipeline)->encode("ab c", {.add_special_tokens = false}).ids, (Ids{8, 9, 10}));
}

TEST(Tokenizer, IdsOfAddedTokensFollowTheVocabulary) {
  formats::Json pipeline = small_pipeline();
  for (const char* token : {R"({"id": 70, "content": "<p>"})", R"({"id": 90, "content": "<q>"})",
                            R"({"id": 91, "content": "<p>"})"})
    pipeline["added_tokens"].push_back(formats::parse_json(token, "x"));
  const auto tokenizer = build(pipeline);
  EXPECT_EQ(tokenizer->token_to_id("<p>"), 18);
  EXPECT_EQ(tokenizer->token_to_id("<q>"), 19);
  EXPECT_EQ(tokenizer->vocab_size(), 20);
}

TEST(Tokenizer, Decode) {
  const auto tokenizer = build(small_pipeline());
  EXPECT_EQ(tokenizer->decode(Ids{2, 4, 5, 6, 7, 11, 16, 17, 3}), "unaffable cafe. do not");
  EXPECT_EQ(tokenizer->decode(Ids{2, 8, 3}, false), "[CLS] a [SEP]");
  EXPECT_EQ(tokenizer->decode(Ids{}), "");
  EXPECT_THROW(tokenizer->decode(Ids{99}), Error);
  EXPECT_THROW(tokenizer->decode(Ids{-1}), Error);
  formats::Json plain = small_pipeline();
  plain["decoder"] = nullptr;
  EXPECT_EQ(build(plain)->decode(Ids{4, 5}), "un ##aff");
}

TEST(Tokenizer, TruncationAndPaddingOnlyWhenAsked) {
  formats::Json pipeline = small_pipeline();
  pipeline["truncation"] = {
      {"max_length", 4}, {"strategy", "LongestFirst"}, {"stride", 0}, {"direction", "Right"}};
  pipeline["padding"] = {
      {"strategy", {{"Fixed", 6}}}, {"direction", "Right"}, {"pad_id", 0}, {"pad_token", "[PAD]"}};
  const auto tokenizer = build(pipeline);
  EXPECT_EQ(tokenizer->encode("a b c a").size(), 6);
  EncodeOptions options;
  options.truncation = tokenizer->truncation();
  options.padding = tokenizer->padding();
  const Encoding e = tokenizer->encode("a b c a", options);
  EXPECT_EQ(e.ids, (Ids{2, 8, 9, 3, 0, 0}));
  EXPECT_EQ(e.attention_mask, (std::vector<uint8_t>{1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(e.special_tokens_mask, (std::vector<uint8_t>{1, 0, 0, 1, 1, 1}));
  options.truncation->max_length = 1;  // no room for [CLS] and [SEP]
  EXPECT_THROW(tokenizer->encode("a", options), Error);
}

TEST(Tokenizer, BatchesArePaddedTogether) {
  const auto tokenizer = build(small_pipeline());
  EncodeOptions options;
  options.padding = Padding{};
  const Texts texts = {"a", "a b c", ""};
  const auto batch = tokenizer->encode_batch(texts, options);
  ASSERT_EQ(batch.size(), 3u);
  EXPECT_EQ(batch[0].ids, (Ids{2, 8, 3, 0, 0}));
  EXPECT_EQ(batch[2].attention_mask, (std::vector<uint8_t>{1, 1, 0, 0, 0}));
}

TEST(Tokenizer, RefusesUnknownPartsByName) {
  for (const char* step : {"normalizer", "pre_tokenizer", "post_processor", "decoder", "model"}) {
    formats::Json pipeline = small_pipeline();
    pipeline[step]["type"] = "Martian";
    const std::string message = build_fault(pipeline);
    EXPECT_NE(message.find("\"Martian\""), std::string::npos) << message;
    EXPECT_NE(message.find(step), std::string::npos) << message;
    EXPECT_NE(message.find("known are"), std::string::npos) << message;
  }
  formats::Json nested = small_pipeline();
  nested["normalizer"] =
      formats::parse_json(R"({"type":"Sequence","normalizers":[{"type":"Martian"}]})", "x");
  EXPECT_NE(build_fault(nested).find("Martian"), std::string::npos);
}

TEST(Tokenizer, RefusesBadTemplates) {
  const auto fault = [](const char* key, const char* value) {
    formats::Json pipeline = small_pipeline();
    pipeline["post_processor"][key] = formats::parse_json(value, "x");
    return build_fault(pipeline);
  };
  EXPECT_NE(fault("single", R"([{"SpecialToken":{"id":"[X]"}}])").find("[X]"), std::string::npos);
  EXPECT_NE(fault("single", R"([{"Sequence":{"id":"B"}}])").find("single"), std::string::npos);
  EXPECT_NE(fault("pair", R"([{"Sequence":{"id":"C"}}])").find("\"C\""), std::string::npos);
  EXPECT_NE(fault("single", "3").find("single"), std::string::npos);
  EXPECT_NE(fault("special_tokens", R"({"[CLS]":{"ids":[1,2],"tokens":["a"]}})").find("[CLS]"),
            std::string::npos);
}

TEST(Tokenizer, OldFilesDoNotNameTheModel) {
  formats::Json pipeline = small_pipeline();
  pipeline["model"].erase("type");
  EXPECT_EQ(build(pipeline)->encode("a").ids, (Ids{2, 8, 3}));
  pipeline["model"].erase("max_input_chars_per_word");
  EXPECT_NE(build_fault(pipeline).find("type"), std::string::npos);
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  EXPECT_THROW(build(small_pipeline())->encode("a\xff"), Error);
}

TEST(Tokenizer, OneObjectServesSeveralThreads) {
  const auto tokenizer = build(small_pipeline());
  std::vector<std::thread> threads;
  std::vector<Ids> results(4);
  for (Ids& result : results)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i)
        result = tokenizer->encode(concat("unaffable ", kCafe, " [SEP]")).ids;
    });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, (Ids{2, 4, 5, 6, 7, 3, 3}));
}

TEST(Tokenizer, LongLines) {
  const auto tokenizer = build(small_pipeline());
  EXPECT_EQ(tokenizer->encode(std::string(1 << 20, 'a')).ids, (Ids{2, 1, 3}));
  std::string words;
  for (int i = 0; i < 1 << 19; ++i) words += "a ";
  EXPECT_EQ(tokenizer->encode(words).size(), (1 << 19) + 2);
}

}  // namespace
}  // namespace hedgerow::tokenizers
