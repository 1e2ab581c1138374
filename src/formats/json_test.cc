#include "formats/json.h"

#include "formats/test_files.h"

namespace hedgerow::formats {
namespace {

std::string fault(const std::string& text) {
  return error_of([&] { parse_json(text, "file.json"); });
}

TEST(Json, KeepsValuesAndTheOrderOfKeys) {
  const Json value =
      parse_json(R"({"z": [1, -2, 2.5, true, null], "a": {"k": "\u00e9"}, "m": []})", "x");
  EXPECT_EQ(dump_json(value), "{\"z\":[1,-2,2.5,true,null],\"a\":{\"k\":\"\xC3\xA9\"},\"m\":[]}");
  EXPECT_EQ(dump_json(parse_json(" \"text\" ", "x")), "\"text\"");
}

TEST(Json, NamesTheFault) {
  for (const char* text :
       {"", "{", "[1,]", "{\"a\":1,}", "{} {}", "nul", "\"a", "{'a':1}", "[1 2]", "\"\\ud800\""}) {
    const std::string message = fault(text);
    EXPECT_MENTIONS(message, "file.json: not valid JSON");
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(Json, AZeroByteIsNoEnd) {
  EXPECT_MENTIONS(fault(std::string("{}\0{}", 5)), "zero byte");
  EXPECT_EQ(parse_json("\"\\u0000\"", "x").get<std::string>(), std::string("\0", 1));
}

TEST(Json, RefusesAKeyGivenTwice) {
  EXPECT_MENTIONS(fault(R"({"a":1,"b":{"c":1,"c":2}})"), "\"c\"");
  EXPECT_MENTIONS(fault(R"({"a":1,"\u0061":2})"), "\"a\"");
  // The same key in different objects is fine.
  EXPECT_EQ(parse_json(R"([{"a":1},{"a":{"a":2}}])", "x").size(), 2u);
}

TEST(Json, LimitsDepth) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse_json(nested(64), "x"));
  EXPECT_MENTIONS(fault(nested(65)), "64");
  EXPECT_MENTIONS(fault(std::string(1'000'000, '[')), "64");
  EXPECT_NO_THROW(parse_json(nested(100), "x", {.max_depth = 100}));
}

TEST(Json, RefusesBytesThatAreNotUtf8) { EXPECT_MENTIONS(fault("{\"a\":\"\xff\"}"), "byte 6"); }

TEST(Json, FindMember) {
  const Json object = parse_json(R"({"a": null, "b": 1})", "x");
  ASSERT_NE(find_member(object, "a"), nullptr);
  EXPECT_TRUE(find_member(object, "a")->is_null());
  EXPECT_EQ(find_member(object, "c"), nullptr);
  EXPECT_EQ(find_member(Json(3), "a"), nullptr);
}

TEST(Json, Excerpts) {
  EXPECT_EQ(excerpt(Json("a\nb")), "\"a\\nb\"");
  EXPECT_EQ(excerpt(Json(3)), "3");
  EXPECT_EQ(excerpt(Json::array()), "an array");
  const std::string cut = quote(std::string(79, 'a') + "\xC3\xA9" + std::string(100, 'b'));
  EXPECT_EQ(cut, "\"" + std::string(79, 'a') + "\"...");
}

TEST(Utf8, FindsTheFirstInvalidByte) {
  constexpr size_t kValid = std::string_view::npos;
  for (const char* text : {"", "a", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF",
                           "\xEE\x80\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
    EXPECT_EQ(find_invalid_utf8(text), kValid) << text;
  // Lone continuation, overlong forms, surrogates, beyond U+10FFFF, cut short, never-valid bytes.
  for (const char* text : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
                           "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xC3", "\xE2\x82",
                           "\xF0\x9F\x98", "\xF5\x80\x80\x80", "\xFF", "\xE2\x28\xA1"}) {
    EXPECT_EQ(find_invalid_utf8(text), 0u) << text;
    EXPECT_EQ(find_invalid_utf8(std::string("ok") + text), 2u) << text;
  }
}

TEST(Json, DumpRefusesBytesThatAreNotUtf8) { EXPECT_THROW(dump_json(Json("\xff")), Error); }

}  // namespace
}  // namespace hedgerow::formats
