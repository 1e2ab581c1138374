// For tests of this folder: files made byte by byte, a folder that goes away, errors as text.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "hedgerow/error.h"

namespace hedgerow::formats {

// A folder of its own for each test.
class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              concat("hedgerow-", test->test_suite_name(), "-", test->name(), "-", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void put(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }

  std::filesystem::path folder_;
};

// Length field, header, data; nothing checked.
inline std::string raw_file(const std::string& header, const std::string& data = "",
                            int64_t length = -1) {
  const auto value =
      static_cast<uint64_t>(length < 0 ? static_cast<int64_t>(header.size()) : length);
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(value >> (8 * i)));
  return file + header + data;
}

// The message of the Error that `call` throws; fails the test when it throws none.
template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "an Error was expected";
  return "";
}

#define EXPECT_MENTIONS(text, word)                          \
  EXPECT_NE(std::string(text).find(word), std::string::npos) \
      << (text) << "\nshould mention " << (word)

}  // namespace hedgerow::formats
