#include "formats/config.h"

#include "formats/test_files.h"

namespace hedgerow::formats {
namespace {

const Config& config() {
  static const Config parsed(
      parse_json(
          R"({"n": 3, "whole": 2.0, "half": 0.5, "big": 18446744073709551615, "flag": true, "name": "bert",
                     "none": null, "list": ["a", "b"], "mixed": ["a", 1], "inner": {"x": 1}, "unknown": [1]})",
          "config.json"),
      "config.json");
  return parsed;
}

TEST(Config, TypedAccess) {
  EXPECT_EQ(config().get_int("n"), 3);
  EXPECT_EQ(config().get_int("whole"), 2);
  EXPECT_EQ(config().get_double("n"), 3.0);
  EXPECT_EQ(config().get_double("half"), 0.5);
  EXPECT_TRUE(config().get_bool("flag"));
  EXPECT_EQ(config().get_string("name"), "bert");
  EXPECT_EQ(config().get_strings("list"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(config().child("inner").get_int("x"), 1);
  EXPECT_EQ(config().get_int_or("missing", 7), 7);
  EXPECT_EQ(config().get_int_or("none", 7), 7);
  EXPECT_EQ(config().get_double_or("missing", 0.25), 0.25);
  EXPECT_TRUE(config().get_bool_or("missing", true));
  EXPECT_EQ(config().get_string_or("missing", "x"), "x");
  EXPECT_FALSE(config().has("none"));
  EXPECT_EQ(config().json()["unknown"], Json::array({1}));
}

TEST(Config, ErrorsNameFileKeyAndValue) {
  const auto check = [](auto call, const std::string& key, const std::string& got) {
    const std::string message = error_of([&] { call(key); });
    EXPECT_MENTIONS(message, "config.json: key \"" + key + "\"");
    EXPECT_MENTIONS(message, got);
  };
  const auto as_int = [](const std::string& key) { config().get_int(key); };
  check(as_int, "missing", "got none");
  check(as_int, "none", "got none");
  check(as_int, "half", "0.5");
  check(as_int, "name", "\"bert\"");
  check(as_int, "flag", "true");
  check(as_int, "big", "18446744073709551615");
  check([](const std::string& key) { config().get_double(key); }, "name", "\"bert\"");
  check([](const std::string& key) { config().get_bool(key); }, "n", "3");
  check([](const std::string& key) { config().get_string(key); }, "n", "3");
  check([](const std::string& key) { config().get_strings(key); }, "mixed", "1");
  check([](const std::string& key) { config().child(key); }, "list", "an array");
  check([](const std::string& key) { config().get_int_or(key, 1); }, "name", "\"bert\"");
  check([](const std::string& key) { config().get_int_in(key, 4, 9); }, "n", "[4, 9]");
  EXPECT_MENTIONS(error_of([] { config().child("inner").get_int("y"); }),
                  "config.json: inner: key \"y\"");
  EXPECT_MENTIONS(error_of([] { Config(Json::array(), "c"); }), "an object");
}

class ConfigFileTest : public FolderTest {};

TEST_F(ConfigFileTest, LoadsAFolder) {
  EXPECT_MENTIONS(error_of([&] { Config::load_folder(folder_.string()); }), "config.json");
  put("config.json", R"({"model_type": "bert"})");
  EXPECT_EQ(Config::load_folder(folder_.string()).get_string("model_type"), "bert");
}

}  // namespace
}  // namespace hedgerow::formats
