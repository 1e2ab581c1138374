#include "data/text.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "data/md5.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hedgerow/error.h"

namespace hedgerow::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> read(const std::string& bytes, const ReadOptions& options = {}) {
  std::istringstream in(bytes);
  return read_texts(in, "file", options);
}

std::string error_of(const std::string& bytes, const ReadOptions& options = {}) {
  try {
    read(bytes, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

ReadOptions tsv(int64_t column) { return {.format = ReadOptions::Format::tsv, .column = column}; }
ReadOptions jsonl() { return {.format = ReadOptions::Format::jsonl}; }

std::string hex(std::string_view bytes) {
  std::string out;
  for (const uint8_t byte : md5(bytes)) {
    out += "0123456789abcdef"[byte >> 4];
    out += "0123456789abcdef"[byte & 15];
  }
  return out;
}

TEST(Md5, Rfc1321TestSuite) {
  EXPECT_EQ(hex(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(hex("a"), "0cc175b9c0f1b6a831c399e269772661");
  EXPECT_EQ(hex("abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(hex("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
  EXPECT_EQ(hex("abcdefghijklmnopqrstuvwxyz"), "c3fcd3d76192e4007dfb496cca67e13b");
  EXPECT_EQ(hex("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
            "d174ab98d277d9f5a5611c2c9f419d9f");
  EXPECT_EQ(hex("12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
            "57edf4a22be3c955ac49da2e2107b67a");
}

TEST(Md5, ModuloReadsTheDigestAsOneNumber) {
  // 0x900150983cd24fb0d6963f7d28e17f72 = 191415658344158766168031473277922803570
  EXPECT_EQ(md5_modulo("abc", 10), 0);
  EXPECT_EQ(md5_modulo("abc", 1000), 570);
  EXPECT_EQ(md5_modulo("abc", int64_t{1} << 32), 0x28e17f72);
}

TEST(Utf8, FindsTheFirstBadByte) {
  EXPECT_EQ(find_invalid_utf8(""), -1);
  EXPECT_EQ(find_invalid_utf8("a\u00e9\u20ac\U0001F600"), -1);
  EXPECT_EQ(find_invalid_utf8("\xf4\x8f\xbf\xbf"), -1);  // U+10FFFF
  EXPECT_EQ(find_invalid_utf8("ab\xff"), 2);
  EXPECT_EQ(find_invalid_utf8("\x80"), 0);              // continuation first
  EXPECT_EQ(find_invalid_utf8("a\xc0\xaf"), 1);         // overlong, 2 bytes
  EXPECT_EQ(find_invalid_utf8("\xe0\x9f\xbf"), 0);      // overlong, 3 bytes
  EXPECT_EQ(find_invalid_utf8("\xf0\x8f\xbf\xbf"), 0);  // overlong, 4 bytes
  EXPECT_EQ(find_invalid_utf8("\xed\xa0\x80"), 0);      // surrogate
  EXPECT_EQ(find_invalid_utf8("\xf4\x90\x80\x80"), 0);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("abc\xe2\x82"), 3);       // cut short
  EXPECT_EQ(find_invalid_utf8("\xc3("), 0);
}

TEST(ReadTexts, LineEnds) {
  EXPECT_THAT(read("one\ntwo\n"), ElementsAre("one", "two"));
  EXPECT_THAT(read("one\r\ntwo\r\n"), ElementsAre("one", "two"));
  EXPECT_THAT(read("one\ntwo"), ElementsAre("one", "two"));
  EXPECT_THAT(read("\xef\xbb\xbfone\n"), ElementsAre("one"));
  EXPECT_THAT(read(" one \n \n\n\ttwo\n"), ElementsAre(" one ", "\ttwo"));
  EXPECT_THAT(read("one\n\ntwo\n", {.skip_blank = false}), ElementsAre("one", "", "two"));
}

TEST(ReadTexts, LongLines) {
  const std::string line(3 << 20, 'x');
  EXPECT_THAT(read(line + "\r\n" + line), ElementsAre(line, line));
}

TEST(ReadTexts, EmptyInputIsRefused) {
  EXPECT_EQ(error_of(""), "file: must contain at least one line of text; got an empty file");
  EXPECT_THAT(error_of("\n \n\r\n"), HasSubstr("got 3 blank lines"));
}

TEST(ReadTexts, BadUtf8NamesLineAndByte) {
  EXPECT_EQ(
      error_of("fine\nso\xff so\n"),
      "file: text must be UTF-8; got byte 0xff in line 2 at byte 3 of the line (byte 8 of the "
      "file)");
  EXPECT_THAT(error_of("\xef\xbb\xbf\xe9t\xe9\n"), HasSubstr("byte 0xe9 in line 1 at byte 1 "));
}

TEST(ReadTexts, TsvColumns) {
  EXPECT_THAT(read("a\tb\tc\nd\te\tf\r\n", tsv(1)), ElementsAre("a", "d"));
  EXPECT_THAT(read("a\tb\tc\nd\te\tf\r\n", tsv(2)), ElementsAre("b", "e"));
  EXPECT_THAT(read("a\tb\tc\nd\te\tf\r\n", tsv(3)), ElementsAre("c", "f"));
  EXPECT_THAT(error_of("a\tb\tc\nd\te\n", tsv(3)),
              HasSubstr("line 2: column 3 asked for; got a line of 2 columns"));
  EXPECT_THAT(error_of("a\n", tsv(0)), HasSubstr("counted from 1; got 0"));
}

TEST(ReadTexts, JsonLines) {
  EXPECT_THAT(read("\"a\\nb\"\n{\"text\": \"\\u00e9\", \"n\": 1}\n", jsonl()),
              ElementsAre("a\nb", "\u00e9"));
  EXPECT_THAT(error_of("\"a\"\nno json\n", jsonl()), HasSubstr("line 2: a line must be JSON"));
  EXPECT_THAT(error_of("[\"a\"]\n", jsonl()), HasSubstr("line 1"));
  EXPECT_THAT(error_of("{\"txt\": \"a\"}\n", jsonl()), HasSubstr("the string \"text\""));
  EXPECT_THAT(error_of("\"\\ud800\"\n", jsonl()), HasSubstr("must be JSON"));
}

TEST(ReadOptions, FollowFromNameAndColumn) {
  EXPECT_EQ(read_options("a.txt", 0).format, ReadOptions::Format::lines);
  EXPECT_EQ(read_options("a.jsonl", 0).format, ReadOptions::Format::jsonl);
  EXPECT_EQ(read_options("a.txt", 0, true).format, ReadOptions::Format::jsonl);
  EXPECT_EQ(read_options("a.tsv", 2).column, 2);
  EXPECT_THROW(read_options("a.tsv", 0), Error);
  EXPECT_THROW(read_options("a.txt", -1), Error);
  EXPECT_THROW(read_options("a.txt", 1, true), Error);
}

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() /
        ("hedgerow_text_" + std::to_string(std::hash<std::string>{}(
                                ::testing::UnitTest::GetInstance()->current_test_info()->name())));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& bytes) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::filesystem::path folder_;
};

TEST_F(Files, MissingFileIsNamed) {
  EXPECT_THROW(read_texts((folder_ / "none.txt").string()), Error);
  EXPECT_THROW(read_texts(folder_.string()), Error);
}

TEST_F(Files, HashSplitFollowsTheRule) {
  std::string bytes;
  for (int i = 0; i < 500; ++i) bytes += "text " + std::to_string(i % 400) + "\n";
  const Split split = read_split(write("a.txt", bytes), "");
  EXPECT_EQ(split.train.size() + split.heldout.size(), 500u);
  EXPECT_NEAR(static_cast<double>(split.heldout.size()), 50, 25);
  EXPECT_EQ(split.num_copies, 0);  // equal texts have equal hashes
  for (const std::string& text : split.heldout) EXPECT_EQ(md5_modulo(text, 10), 0);
  for (const std::string& text : split.train) EXPECT_NE(md5_modulo(text, 10), 0);
}

TEST_F(Files, CopiesOfTrainingTextsLeaveTheHeldOutFile) {
  const Split split = read_split(write("a.txt", "a\nb\nc\n"), write("b.txt", "d\nb\ne\nb\n"));
  EXPECT_THAT(split.train, ElementsAre("a", "b", "c"));
  EXPECT_THAT(split.heldout, ElementsAre("d", "e"));
  EXPECT_EQ(split.num_copies, 2);
}

TEST_F(Files, EmptySidesAreRefused) {
  EXPECT_THROW(read_split(write("a.txt", "a\nb\n"), write("b.txt", "b\na\n")), Error);
  EXPECT_THROW(read_split(write("c.txt", "abc\n"), ""), Error);  // MD5 ends in 0: all held out
  EXPECT_THROW(read_split(write("d.txt", "a\n"), ""), Error);    // nothing held out
}

}  // namespace
}  // namespace hedgerow::data
