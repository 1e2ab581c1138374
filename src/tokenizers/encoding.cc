#include "tokenizers/encoding.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "hedgerow/error.h"

namespace hedgerow::tokenizers {
namespace {

template <typename T>
void move_behind(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

template <typename T>
void keep(std::vector<T>& values, size_t length, Side side) {
  if (side == Side::kLeft)
    values.erase(values.begin(), values.end() - static_cast<std::ptrdiff_t>(length));
  values.resize(length);
}

template <typename T>
void fill(std::vector<T>& values, size_t length, Side side, const T& value) {
  const size_t missing = length - values.size();
  values.insert(side == Side::kLeft ? values.begin() : values.end(), missing, value);
}

// Lengths of two sequences that longest_first leaves of n1 <= n2: the longer one gives way first,
// then both share what there is.
std::pair<int64_t, int64_t> share(int64_t n1, int64_t n2, int64_t max_length) {
  n2 = n1 > max_length ? n1 : std::max(n1, max_length - n1);
  if (n1 + n2 > max_length) {
    n1 = max_length / 2;
    n2 = n1 + max_length % 2;
  }
  return {n1, n2};
}

}  // namespace

void Encoding::push_back(int32_t id, std::string token, Span offset, int32_t type_id,
                         bool special) {
  ids.push_back(id);
  tokens.push_back(std::move(token));
  offsets.push_back(offset);
  type_ids.push_back(type_id);
  attention_mask.push_back(1);
  special_tokens_mask.push_back(special ? 1 : 0);
}

void Encoding::append(Encoding&& other) {
  move_behind(ids, other.ids);
  move_behind(tokens, other.tokens);
  move_behind(offsets, other.offsets);
  move_behind(type_ids, other.type_ids);
  move_behind(attention_mask, other.attention_mask);
  move_behind(special_tokens_mask, other.special_tokens_mask);
}

void Encoding::truncate(int64_t length, Side side) {
  if (length >= size()) return;
  const auto count = static_cast<size_t>(length);
  keep(ids, count, side);
  keep(tokens, count, side);
  keep(offsets, count, side);
  keep(type_ids, count, side);
  keep(attention_mask, count, side);
  keep(special_tokens_mask, count, side);
}

void Encoding::pad(int64_t length, const Padding& padding) {
  if (length <= size()) return;
  const auto count = static_cast<size_t>(length);
  fill(ids, count, padding.side, padding.pad_id);
  fill(tokens, count, padding.side, padding.pad_token);
  fill(offsets, count, padding.side, Span{});
  fill(type_ids, count, padding.side, padding.pad_type_id);
  fill(attention_mask, count, padding.side, uint8_t{0});
  fill(special_tokens_mask, count, padding.side, uint8_t{1});
}

void truncate_sequences(Encoding& first, Encoding* second, const Truncation& truncation) {
  const int64_t max_length = truncation.max_length;
  const int64_t total = first.size() + (second == nullptr ? 0 : second->size());
  if (total <= max_length) return;
  if (max_length == 0) {
    first.truncate(0, truncation.side);
    if (second != nullptr) second->truncate(0, truncation.side);
    return;
  }
  if (truncation.strategy == TruncationStrategy::kLongestFirst) {
    if (second == nullptr) {
      first.truncate(max_length, truncation.side);
      return;
    }
    const bool swapped = first.size() > second->size();
    auto [n1, n2] = share(std::min(first.size(), second->size()),
                          std::max(first.size(), second->size()), max_length);
    if (swapped) std::swap(n1, n2);
    first.truncate(n1, truncation.side);
    second->truncate(n2, truncation.side);
    return;
  }
  const bool only_first = truncation.strategy == TruncationStrategy::kOnlyFirst;
  HEDGEROW_CHECK(only_first || second != nullptr,
                 "truncate: OnlySecond needs a second sequence; got none");
  Encoding& target = only_first ? first : *second;
  const int64_t to_remove = total - max_length;
  HEDGEROW_CHECK(target.size() > to_remove,
                 "truncate: the sequence that may be cut must be longer than what must go; got ",
                 target.size(), " tokens, of which ", to_remove, " must go");
  target.truncate(target.size() - to_remove, truncation.side);
}

void pad_batch(std::span<Encoding> batch, const Padding& padding) {
  int64_t length = 0;
  if (padding.fixed_length) {
    length = *padding.fixed_length;
  } else {
    for (const Encoding& encoding : batch) length = std::max(length, encoding.size());
  }
  if (padding.multiple_of && *padding.multiple_of > 0)
    length = (length + *padding.multiple_of - 1) / *padding.multiple_of * *padding.multiple_of;
  for (Encoding& encoding : batch) encoding.pad(length, padding);
}

}  // namespace hedgerow::tokenizers
