// Token sequences to batches of tensors: padding, batches of similar length in a seeded order that
// can be taken up anywhere, windows of a fixed length. Works on ids; knows no tokenizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace hedgerow::data {

struct Sequence {
  std::vector<int64_t> ids;       // [T]
  std::vector<int64_t> type_ids;  // [T], or empty: zeros
};

struct Batch {
  at::Tensor input_ids;          // int64 [B,T], T = the longest sequence, padded at the end
  at::Tensor attention_mask;     // int64 [B,T], 1 = token, 0 = padding
  at::Tensor token_type_ids;     // int64 [B,T], 0 in the padding
  std::vector<int64_t> indices;  // [B], which sequences these are
};

// The sequences named by `indices` as one batch. Throws Error when a sequence is empty, an index is
// out of range, or type_ids has another length than ids.
Batch make_batch(const std::vector<Sequence>& sequences, std::span<const int64_t> indices,
                 int64_t pad_id);

std::vector<int64_t> lengths(const std::vector<Sequence>& sequences);

// Every index once, batches of similar length, longest first (so that memory peaks at once): the
// order for evaluation and embedding.
std::vector<std::vector<int64_t>> batches_by_length(std::span<const int64_t> lengths,
                                                    int64_t batch_size);

// Where a BatchOrder stands; two numbers that a checkpoint stores.
struct BatchPosition {
  int64_t epoch = 0;
  int64_t batch = 0;  // batches of this epoch already taken
  bool operator==(const BatchPosition&) const = default;
};

// Endless training order. An epoch holds every index once: shuffled, cut into groups of
// `group_batches` batches, each group sorted by length and cut into batches, and the batches
// shuffled. The order depends on lengths, batch size and seed alone; seek() takes it up anywhere
// with the same continuation. The last batch of an epoch may be smaller.
class BatchOrder {
 public:
  // Throws Error when there is nothing to order or a size is below 1.
  BatchOrder(std::vector<int64_t> lengths, int64_t batch_size, uint64_t seed,
             int64_t group_batches = 32);

  // Indices of the next batch.
  std::vector<int64_t> next();

  BatchPosition position() const { return position_; }
  // Throws Error when the epoch has no such batch.
  void seek(const BatchPosition& position);

  int64_t batches_per_epoch() const;

 private:
  void shuffle_epoch();

  std::vector<int64_t> lengths_;
  int64_t batch_size_;
  uint64_t seed_;
  int64_t group_batches_;
  BatchPosition position_;
  std::vector<std::vector<int64_t>> batches_;  // of the current epoch
};

struct WindowOptions {
  int64_t window = 0;           // tokens of a window, prefix and suffix included
  std::vector<int64_t> prefix;  // [CLS]
  std::vector<int64_t> suffix;  // [SEP]
  bool keep_last = false;       // also the last, shorter window
};

// Texts joined end to end (ids without special tokens) and cut into windows of exactly `window`
// tokens. A text may continue in the next window; nothing is repeated. Throws Error when the window
// leaves no room beside prefix and suffix, or when there are too few tokens for one window.
std::vector<Sequence> pack_windows(const std::vector<std::vector<int64_t>>& texts,
                                   const WindowOptions& options);

}  // namespace hedgerow::data
