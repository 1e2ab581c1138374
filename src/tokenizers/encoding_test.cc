#include "tokenizers/encoding.h"

#include <gtest/gtest.h>

#include "hedgerow/error.h"

namespace hedgerow::tokenizers {
namespace {

// Ids first .. first + count - 1.
Encoding sequence(int32_t first, int32_t count) {
  Encoding e;
  for (int32_t i = 0; i < count; ++i)
    e.push_back(first + i, std::to_string(first + i),
                {static_cast<uint32_t>(i), static_cast<uint32_t>(i + 1)}, 0, false);
  return e;
}

using Ids = std::vector<int32_t>;

struct Case {
  int32_t first, second;  // tokens before
  int64_t max_length;
  int64_t first_after, second_after;
};

TEST(Truncation, LongestFirst) {
  // The longer one gives way until both are alike.
  for (const Case& c :
       {Case{5, 3, 10, 5, 3}, Case{5, 3, 8, 5, 3}, Case{5, 3, 7, 4, 3}, Case{5, 3, 6, 3, 3},
        Case{5, 3, 5, 3, 2}, Case{3, 5, 7, 3, 4}, Case{3, 5, 5, 2, 3}, Case{1, 9, 3, 1, 2},
        Case{9, 1, 3, 2, 1}, Case{9, 9, 1, 0, 1}, Case{9, 8, 1, 1, 0}, Case{4, 4, 0, 0, 0}}) {
    Encoding first = sequence(0, c.first);
    Encoding second = sequence(100, c.second);
    truncate_sequences(first, &second, {.max_length = c.max_length});
    EXPECT_EQ(first.size(), c.first_after) << c.first << ' ' << c.second << ' ' << c.max_length;
    EXPECT_EQ(second.size(), c.second_after) << c.first << ' ' << c.second << ' ' << c.max_length;
  }
}

TEST(Truncation, Sides) {
  Encoding right = sequence(0, 5);
  truncate_sequences(right, nullptr, {.max_length = 2});
  EXPECT_EQ(right.ids, (Ids{0, 1}));
  Encoding left = sequence(0, 5);
  truncate_sequences(left, nullptr, {.max_length = 2, .side = Side::kLeft});
  EXPECT_EQ(left.ids, (Ids{3, 4}));
  EXPECT_EQ(left.tokens, (std::vector<std::string>{"3", "4"}));
  EXPECT_EQ(left.offsets, (std::vector<Span>{{3, 4}, {4, 5}}));
  EXPECT_EQ(left.attention_mask.size(), 2u);
}

TEST(Truncation, OneSideOnly) {
  Encoding first = sequence(0, 5);
  Encoding second = sequence(100, 3);
  const Truncation only_first{.max_length = 5, .strategy = TruncationStrategy::kOnlyFirst};
  truncate_sequences(first, &second, only_first);
  EXPECT_EQ(first.size(), 2);
  EXPECT_EQ(second.size(), 3);
  EXPECT_THROW(truncate_sequences(first, &second,
                                  {.max_length = 3, .strategy = TruncationStrategy::kOnlyFirst}),
               Error);
  EXPECT_THROW(truncate_sequences(first, nullptr,
                                  {.max_length = 1, .strategy = TruncationStrategy::kOnlySecond}),
               Error);
  truncate_sequences(first, &second,
                     {.max_length = 4, .strategy = TruncationStrategy::kOnlySecond});
  EXPECT_EQ(second.size(), 2);
}

TEST(Padding, LengthsAndSides) {
  std::vector<Encoding> batch = {sequence(1, 3), sequence(1, 1)};
  pad_batch(batch, {.pad_id = 9, .pad_type_id = 2, .pad_token = "P"});
  EXPECT_EQ(batch[1].ids, (Ids{1, 9, 9}));
  EXPECT_EQ(batch[1].type_ids, (Ids{0, 2, 2}));
  EXPECT_EQ(batch[1].tokens[2], "P");
  EXPECT_EQ(batch[1].offsets[2], (Span{0, 0}));
  pad_batch(batch, {.multiple_of = 4, .side = Side::kLeft, .pad_id = 7});
  EXPECT_EQ(batch[0].ids, (Ids{7, 1, 2, 3}));
  EXPECT_EQ(batch[0].attention_mask, (std::vector<uint8_t>{0, 1, 1, 1}));
  pad_batch(batch, {.fixed_length = 2});  // never shorter
  EXPECT_EQ(batch[0].size(), 4);
  pad_batch(batch, {.fixed_length = 5, .multiple_of = 4});
  EXPECT_EQ(batch[0].size(), 8);
}

}  // namespace
}  // namespace hedgerow::tokenizers
