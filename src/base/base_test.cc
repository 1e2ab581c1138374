#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "base/aligned_buffer.h"
#include "base/atomic_file.h"
#include "base/counter_rng.h"
#include "base/parallel.h"
#include "hedgerow/error.h"

namespace hedgerow {
namespace {

TEST(Parallel, EveryTaskOnceWithAnyThreadCount) {
  for (int threads : {1, 2, 5}) {
    set_num_threads(threads);
    for (int64_t tasks : {0, 1, 3, 100}) {
      std::vector<std::atomic<int>> seen(tasks);
      parallel_for(tasks, [&](int64_t i, int64_t worker) {
        EXPECT_LT(worker, max_workers(tasks));
        seen[i]++;
      });
      for (auto& s : seen) EXPECT_EQ(s, 1);
    }
  }
  set_num_threads(1);
}

TEST(Parallel, ExceptionReachesTheCaller) {
  set_num_threads(3);
  EXPECT_THROW(parallel_for(10, [](int64_t i, int64_t) { HEDGEROW_CHECK(i != 7, "seven"); }),
               Error);
  set_num_threads(1);
}

TEST(AlignedBuffer, WholeAndAlignedAtAnySize) {
  AlignedBuffer<float> buffer;
  for (int64_t size : {1, 17, (1 << 19) - 1, 1 << 19, (1 << 19) + 1, 3 << 19, 5}) {
    buffer.resize(size);
    ASSERT_EQ(buffer.size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    std::fill_n(buffer.data(), size, 1.0f);
    EXPECT_EQ(buffer[size - 1], 1.0f);
  }
  // Too much, too much to count in bytes, less than nothing.
  for (int64_t size : {int64_t{1} << 59, int64_t{1} << 62, int64_t{-1}}) {
    buffer.resize(5);
    EXPECT_THROW(buffer.resize(size), std::bad_alloc);
    EXPECT_EQ(buffer.size(), 0);
    EXPECT_EQ(buffer.data(), nullptr);
  }
}

TEST(AtomicFile, TargetChangesOnlyOnCommit) {
  const auto folder = std::filesystem::temp_directory_path() / "hedgerow_atomic_file_test";
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "f").string();
  write_file_atomically(path, "old");
  {
    AtomicFile file(path);
    file.write("new and longer");
  }
  EXPECT_EQ(read_file(path), "old");
  write_file_atomically(path, "new");
  EXPECT_EQ(read_file(path), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  std::filesystem::remove_all(folder);
  EXPECT_THROW(write_file_atomically(path, "x"), Error);
  EXPECT_THROW(read_file(path), Error);
}

// A file size limit refuses bytes as a full disk does.
TEST(AtomicFile, RefusedBytesAreAFailureAndTheOldFileStays) {
  const auto folder = std::filesystem::temp_directory_path() / "hedgerow_refused_bytes_test";
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "f").string();
  write_file_atomically(path, "old");
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(write_file_atomically(path, std::string(10000, 'x')), Failure);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  std::filesystem::remove_all(folder);
}

TEST(CounterRng, DropoutKeepsItsShare) {
  const uint64_t key = dropout_row_key(7, 1, 2, 3);
  int kept = 0;
  for (int s = 0; s < 100000; s++) kept += dropout_bits(key, s) >= dropout_threshold(0.3);
  EXPECT_NEAR(kept / 1e5, 0.7, 0.01);
  EXPECT_NE(dropout_row_key(7, 1, 2, 3), dropout_row_key(7, 1, 3, 2));
}

}  // namespace
}  // namespace hedgerow
