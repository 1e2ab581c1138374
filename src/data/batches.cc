#include "data/batches.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "base/counter_rng.h"
#include "hedgerow/error.h"

namespace hedgerow::data {
namespace {

// Fisher-Yates with bits that depend on the key and the place alone. The bias of the modulo is
// below size / 2^64.
template <typename T>
void shuffle(std::vector<T>& values, uint64_t key) {
  for (size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[mix64(key ^ mix64(i)) % i]);
  }
}

void sort_by_length(std::span<int64_t> indices, std::span<const int64_t> lengths) {
  std::stable_sort(indices.begin(), indices.end(),
                   [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
}

void cut(std::span<const int64_t> indices, int64_t batch_size,
         std::vector<std::vector<int64_t>>& batches) {
  while (!indices.empty()) {
    const auto batch = indices.first(std::min<size_t>(batch_size, indices.size()));
    batches.emplace_back(batch.begin(), batch.end());
    indices = indices.subspan(batch.size());
  }
}

}  // namespace

std::vector<int64_t> lengths(const std::vector<Sequence>& sequences) {
  std::vector<int64_t> result;
  result.reserve(sequences.size());
  for (const Sequence& s : sequences) result.push_back(static_cast<int64_t>(s.ids.size()));
  return result;
}

Batch make_batch(const std::vector<Sequence>& sequences, std::span<const int64_t> indices,
                 int64_t pad_id) {
  const int64_t batch_size = static_cast<int64_t>(indices.size());
  const int64_t num_sequences = static_cast<int64_t>(sequences.size());
  int64_t longest = 0;
  for (const int64_t index : indices) {
    HEDGEROW_CHECK(index >= 0 && index < num_sequences, "make_batch: index must be below ",
                   num_sequences, "; got ", index);
    const Sequence& s = sequences[index];
    HEDGEROW_CHECK(!s.ids.empty(), "make_batch: a sequence must have tokens; got none in sequence ",
                   index);
    HEDGEROW_CHECK(s.type_ids.empty() || s.type_ids.size() == s.ids.size(),
                   "make_batch: type_ids must be as long as ids; got ", s.type_ids.size(), " and ",
                   s.ids.size(), " in sequence ", index);
    longest = std::max(longest, static_cast<int64_t>(s.ids.size()));
  }

  Batch batch;
  batch.indices.assign(indices.begin(), indices.end());
  batch.input_ids = at::full({batch_size, longest}, pad_id, at::kLong);
  batch.attention_mask = at::zeros({batch_size, longest}, at::kLong);
  batch.token_type_ids = at::zeros({batch_size, longest}, at::kLong);
  int64_t* ids = batch.input_ids.mutable_data_ptr<int64_t>();
  int64_t* mask = batch.attention_mask.mutable_data_ptr<int64_t>();
  int64_t* types = batch.token_type_ids.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < batch_size; ++row) {
    const Sequence& s = sequences[indices[row]];
    std::copy(s.ids.begin(), s.ids.end(), ids + row * longest);
    std::fill_n(mask + row * longest, s.ids.size(), 1);
    std::copy(s.type_ids.begin(), s.type_ids.end(), types + row * longest);
  }
  return batch;
}

std::vector<std::vector<int64_t>> batches_by_length(std::span<const int64_t> lengths,
                                                    int64_t batch_size) {
  HEDGEROW_CHECK(batch_size >= 1, "batches: batch size must be at least 1; got ", batch_size);
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  sort_by_length(order, lengths);
  std::vector<std::vector<int64_t>> batches;
  cut(order, batch_size, batches);
  return batches;
}

BatchOrder::BatchOrder(std::vector<int64_t> lengths, int64_t batch_size, uint64_t seed,
                       int64_t group_batches)
    : lengths_(std::move(lengths)),
      batch_size_(batch_size),
      seed_(seed),
      group_batches_(group_batches) {
  HEDGEROW_CHECK(!lengths_.empty(), "batches: there must be at least one text; got none");
  HEDGEROW_CHECK(batch_size_ >= 1, "batches: batch size must be at least 1; got ", batch_size_);
  HEDGEROW_CHECK(group_batches_ >= 1, "batches: a group must have at least 1 batch; got ",
                 group_batches_);
  shuffle_epoch();
}

int64_t BatchOrder::batches_per_epoch() const { return static_cast<int64_t>(batches_.size()); }

void BatchOrder::shuffle_epoch() {
  const uint64_t key = mix64(mix64(seed_) ^ static_cast<uint64_t>(position_.epoch));
  std::vector<int64_t> order(lengths_.size());
  std::iota(order.begin(), order.end(), 0);
  shuffle(order, mix64(key ^ 1));

  batches_.clear();
  const size_t group = static_cast<size_t>(batch_size_ * group_batches_);
  for (size_t begin = 0; begin < order.size(); begin += group) {
    const std::span<int64_t> part(order.data() + begin, std::min(group, order.size() - begin));
    sort_by_length(part, lengths_);
    cut(part, batch_size_, batches_);
  }
  shuffle(batches_, mix64(key ^ 2));
}

std::vector<int64_t> BatchOrder::next() {
  if (position_.batch == batches_per_epoch()) {
    ++position_.epoch;
    position_.batch = 0;
    shuffle_epoch();
  }
  return batches_[position_.batch++];
}

void BatchOrder::seek(const BatchPosition& position) {
  HEDGEROW_CHECK(
      position.epoch >= 0 && position.batch >= 0 && position.batch <= batches_per_epoch(),
      "batches: a position must lie in an epoch of ", batches_per_epoch(), " batches; got epoch ",
      position.epoch, ", batch ", position.batch);
  position_ = position;
  shuffle_epoch();
}

std::vector<Sequence> pack_windows(const std::vector<std::vector<int64_t>>& texts,
                                   const WindowOptions& options) {
  const int64_t fixed = static_cast<int64_t>(options.prefix.size() + options.suffix.size());
  const int64_t room = options.window - fixed;
  HEDGEROW_CHECK(room >= 1, "pack_windows: a window must be longer than its ", fixed,
                 " fixed tokens; got ", options.window);
  std::vector<Sequence> windows;
  std::vector<int64_t> body;
  const auto close = [&] {
    Sequence window;
    window.ids = options.prefix;
    window.ids.insert(window.ids.end(), body.begin(), body.end());
    window.ids.insert(window.ids.end(), options.suffix.begin(), options.suffix.end());
    windows.push_back(std::move(window));
    body.clear();
  };
  int64_t num_tokens = 0;
  for (const std::vector<int64_t>& text : texts) {
    num_tokens += static_cast<int64_t>(text.size());
    for (const int64_t id : text) {
      body.push_back(id);
      if (static_cast<int64_t>(body.size()) == room) close();
    }
  }
  if (options.keep_last && !body.empty()) close();
  HEDGEROW_CHECK(!windows.empty(), "pack_windows: text must fill one window of ", options.window,
                 " tokens; got ", num_tokens, " tokens and ", fixed, " fixed ones");
  return windows;
}

}  // namespace hedgerow::data
