#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "hedgerow/error.h"

namespace hedgerow {
namespace {

class MappedFileTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / concat("hedgerow-mapped-", ::getpid());
};

TEST_F(MappedFileTest, HoldsTheBytesAfterTheNameIsGone) {
  std::ofstream(path("a")) << "some bytes";
  const auto file = MappedFile::open(path("a"));
  std::filesystem::remove(path("a"));
  EXPECT_EQ(file->bytes(), "some bytes");
  EXPECT_EQ(file->path(), path("a"));
}

TEST_F(MappedFileTest, EmptyFile) {
  std::ofstream(path("empty")).flush();
  EXPECT_EQ(MappedFile::open(path("empty"))->bytes().size(), 0u);
}

TEST_F(MappedFileTest, RefusesWhatIsNoRegularFile) {
  EXPECT_THROW(MappedFile::open(path("missing")), Error);
  EXPECT_THROW(MappedFile::open(folder_.string()), Error);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THROW(MappedFile::open(path("pipe")), Error);
}

}  // namespace
}  // namespace hedgerow
