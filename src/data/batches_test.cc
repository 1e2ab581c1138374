#include "data/batches.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hedgerow/error.h"

namespace hedgerow::data {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> some_lengths(int64_t count) {
  std::vector<int64_t> result(count);
  for (int64_t i = 0; i < count; ++i) result[i] = 3 + (i * 7919) % 97;
  return result;
}

TEST(MakeBatch, PadsToTheLongest) {
  const std::vector<Sequence> sequences = {{{5, 6, 7}, {0, 1, 1}}, {{8}, {}}, {{9, 4}, {}}};
  const std::vector<int64_t> indices = {1, 0};
  const Batch batch = make_batch(sequences, indices, 42);
  const auto expect = [](const at::Tensor& got, std::vector<int64_t> rows) {
    EXPECT_TRUE(at::equal(got, at::tensor(rows, at::kLong).view({2, 3}))) << got;
  };
  expect(batch.input_ids, {8, 42, 42, 5, 6, 7});
  expect(batch.attention_mask, {1, 0, 0, 1, 1, 1});
  expect(batch.token_type_ids, {0, 0, 0, 0, 1, 1});
  EXPECT_EQ(batch.indices, indices);
  EXPECT_THAT(lengths(sequences), ElementsAre(3, 1, 2));
}

TEST(MakeBatch, RefusesWhatItCannotBatch) {
  const std::vector<Sequence> sequences = {{{5}, {}}, {{}, {}}, {{5, 6}, {0}}};
  for (const int64_t index : {int64_t{-1}, int64_t{3}, int64_t{1}, int64_t{2}}) {
    const std::vector<int64_t> indices = {0, index};
    EXPECT_THROW(make_batch(sequences, indices, 0), Error) << index;
  }
}

TEST(BatchesByLength, EachOnceLongestFirst) {
  const std::vector<int64_t> lengths = some_lengths(101);
  const auto batches = batches_by_length(lengths, 16);
  ASSERT_EQ(batches.size(), 7u);
  EXPECT_EQ(batches.back().size(), 101u % 16);
  std::vector<int64_t> all;
  for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  for (size_t i = 1; i < all.size(); ++i) EXPECT_GE(lengths[all[i - 1]], lengths[all[i]]);
  std::sort(all.begin(), all.end());
  for (int64_t i = 0; i < 101; ++i) EXPECT_EQ(all[i], i);
  EXPECT_TRUE(batches_by_length({}, 4).empty());
  EXPECT_THROW(batches_by_length(lengths, 0), Error);
}

class Orders : public ::testing::TestWithParam<std::pair<int64_t, int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Orders,
                         ::testing::Values(std::pair{1, 1}, std::pair{1, 8}, std::pair{65, 8},
                                           std::pair{1000, 8}, std::pair{64, 64},
                                           std::pair{63, 1}));

TEST_P(Orders, EveryEpochHoldsEachIndexOnce) {
  const auto [count, batch_size] = GetParam();
  BatchOrder order(some_lengths(count), batch_size, 3);
  EXPECT_EQ(order.batches_per_epoch(), (count + batch_size - 1) / batch_size);
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> seen;
    for (int64_t i = 0; i < order.batches_per_epoch(); ++i) {
      const auto batch = order.next();
      EXPECT_LE(static_cast<int64_t>(batch.size()), batch_size);
      EXPECT_EQ(order.position().epoch, epoch);
      seen.insert(seen.end(), batch.begin(), batch.end());
    }
    std::sort(seen.begin(), seen.end());
    ASSERT_EQ(static_cast<int64_t>(seen.size()), count);
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(seen[i], i);
  }
}

TEST_P(Orders, ContinuesExactlyFromAnyPosition) {
  const auto [count, batch_size] = GetParam();
  BatchOrder whole(some_lengths(count), batch_size, 11);
  std::vector<BatchPosition> positions;
  std::vector<std::vector<int64_t>> batches;
  for (int64_t i = 0; i < 2 * whole.batches_per_epoch() + 3; ++i) {
    positions.push_back(whole.position());
    batches.push_back(whole.next());
  }
  for (size_t start = 0; start < batches.size(); start += 1 + batches.size() / 7) {
    BatchOrder resumed(some_lengths(count), batch_size, 11);
    resumed.seek(positions[start]);
    for (size_t i = start; i < batches.size(); ++i) ASSERT_EQ(resumed.next(), batches[i]);
  }
}

TEST(BatchOrder, SeedsAndEpochsDiffer) {
  BatchOrder a(some_lengths(200), 8, 0), b(some_lengths(200), 8, 0), c(some_lengths(200), 8, 1);
  std::vector<std::vector<int64_t>> first, again, other, second;
  for (int i = 0; i < 25; ++i) {
    first.push_back(a.next());
    again.push_back(b.next());
    other.push_back(c.next());
  }
  for (int i = 0; i < 25; ++i) second.push_back(a.next());
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  EXPECT_NE(first, second);
}

TEST(BatchOrder, BatchesHoldSimilarLengths) {
  // Padding wasted by length-sorted groups is a small part of what a plain shuffle wastes.
  const std::vector<int64_t> lengths = some_lengths(4096);
  const auto padded = [&](int64_t group_batches) {
    BatchOrder order(lengths, 16, 0, group_batches);
    int64_t total = 0;
    for (int64_t i = 0; i < order.batches_per_epoch(); ++i) {
      int64_t longest = 0;
      const auto batch = order.next();
      for (const int64_t index : batch) longest = std::max(longest, lengths[index]);
      total += longest * static_cast<int64_t>(batch.size());
    }
    return total - std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  };
  EXPECT_LT(padded(32) * 10, padded(1));
}

TEST(BatchOrder, RefusesNonsense) {
  EXPECT_THROW(BatchOrder({}, 8, 0), Error);
  EXPECT_THROW(BatchOrder({1}, 0, 0), Error);
  EXPECT_THROW(BatchOrder({1}, 1, 0, 0), Error);
  BatchOrder order(some_lengths(10), 4, 0);
  EXPECT_THROW(order.seek({0, 4}), Error);
  EXPECT_THROW(order.seek({-1, 0}), Error);
  EXPECT_NO_THROW(order.seek({5, 3}));
}

TEST(PackWindows, FillsEachWindow) {
  const WindowOptions options{.window = 5, .prefix = {101}, .suffix = {102}};
  const auto windows = pack_windows({{1, 2}, {}, {3, 4, 5, 6, 7}, {8}}, options);
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_THAT(windows[0].ids, ElementsAre(101, 1, 2, 3, 102));
  EXPECT_THAT(windows[1].ids, ElementsAre(101, 4, 5, 6, 102));

  WindowOptions all = options;
  all.keep_last = true;
  const auto with_last = pack_windows({{1, 2}, {3, 4, 5, 6, 7}, {8}}, all);
  ASSERT_EQ(with_last.size(), 3u);
  EXPECT_THAT(with_last[2].ids, ElementsAre(101, 7, 8, 102));
}

TEST(PackWindows, RefusesTooLittle) {
  EXPECT_THROW(pack_windows({{1, 2}}, {.window = 3}), Error);
  EXPECT_THROW(pack_windows({{1, 2}}, {.window = 2, .prefix = {101}, .suffix = {102}}), Error);
  EXPECT_EQ(pack_windows({{1, 2}}, {.window = 3, .keep_last = true}).size(), 1u);
}

}  // namespace
}  // namespace hedgerow::data
