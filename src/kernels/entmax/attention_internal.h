// Shared by the entmax attention kernels and their reference: the threshold and the support of a
// row as they are kept, how work is cut.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/counter_rng.h"
#include "hedgerow/kernels/entmax_attention.h"
#include "kernels/entmax/attention_screen.h"
#include "kernels/entmax/entmax_math.h"
#include "kernels/softmax/softmax_internal.h"

namespace hedgerow::kernels {

inline double alpha_of(const EntmaxAttentionParams& p, int64_t h) {
  return p.alpha[h * p.alpha_stride];
}

// What dropout leaves of a weight of 1 at key s, of the row that has the key.
inline float dropout_factor(const EntmaxAttentionParams& p, uint64_t row_key, int64_t s) {
  const bool keep = dropout_bits(row_key, s) >= dropout_threshold(p.dropout_p);
  return keep ? static_cast<float>(1.0 / (1.0 - p.dropout_p)) : 0.0f;
}

// Query rows per tile of scores: 24 x 4096 floats are 384 KB of L2.
inline constexpr int64_t kRowTile = 24;
// Share of the visible keys above which rows are dense: multiplied as tiles, zeros and all. A
// backward reads and writes more of its lists.
inline constexpr double kDenseShare = 0.3;
inline constexpr double kDenseShareBackward = 0.25;
// Queries whose pairs are sorted together, and how many pairs a key then has at most on average.
inline constexpr int64_t kPairRows = 16 * kRowTile;
inline constexpr int64_t kPairsPerKey = 4;

// K^T panels [panel][D][panel width] of one head, packed once per worker.
struct PanelScratch {
  AlignedBuffer<float> panels, staging;
  int64_t batch = -1, kv_head = -1, done = 0;
};
// Rows of one head as float32, padded to whole vectors: as they are, and with those that are not
// finite zeroed.
struct RowScratch {
  AlignedBuffer<float> rows, clean;
  std::vector<int64_t> bad;  // rows that `clean` zeroes
  int64_t batch = -1, kv_head = -1, rows_done = 0, clean_done = 0;
};
struct TileScratch {
  AlignedBuffer<float> q, scores, highest, bias;
};
// Rows whose lists are solved together.
inline constexpr int64_t kGroup = 4;
// Lists of keys, one per row of a group, and what their solution needs on the way.
struct ListScratch {
  int64_t stride = 0;           // entries per list
  AlignedBuffer<int32_t> keys;  // [kGroup][stride], like the next four
  AlignedBuffer<float> scores, weights, s, u;
  AlignedBuffer<float> dropped;         // [stride]
  AlignedBuffer<uint64_t> bits, words;  // [stride / 64]
  std::vector<double> wide_scores, wide_scratch;
};
// Room for the longest lists, in whole vectors and words of bits, that start in different sets of
// a cache.
inline void reserve_lists(ListScratch& list, int64_t keys) {
  list.stride = divide_up(keys, 64) * 64 + 192;
  for (AlignedBuffer<float>* x : {&list.scores, &list.weights, &list.s, &list.u}) {
    reserve(*x, kGroup * list.stride);
  }
  reserve(list.dropped, list.stride);
  if (list.keys.size() < kGroup * list.stride) list.keys.resize(kGroup * list.stride);
  for (AlignedBuffer<uint64_t>* x : {&list.bits, &list.words}) {
    if (x->size() < list.stride / 64) x->resize(list.stride / 64);
  }
}

// What one worker keeps between forward tasks.
struct EntmaxForwardScratch {
  PanelScratch keys;
  RowScratch key_rows, values;
  ScreenScratch screen;
  TileScratch tile;
  ListScratch list;
  AlignedBuffer<float> out;
};

// Writes out and, unless support is nullptr, what is kept of the tile's rows.
void entmax_forward_tile(const EntmaxAttentionParams& p, const MutTensor& out,
                         const EntmaxSupport* support, const ForwardTile& tile,
                         EntmaxForwardScratch& scratch);

// Supported pairs as they come, and sorted by key.
struct PairScratch {
  AlignedBuffer<int32_t> key, row, sorted_row, first;
  AlignedBuffer<float> dscore, weight, sorted_dscore, sorted_weight;
};

// What one worker keeps between backward tasks.
struct EntmaxBackwardScratch {
  PanelScratch keys, values;
  RowScratch key_rows, value_rows;
  TileScratch tile;
  ListScratch list;
  AlignedBuffer<float> dweights;     // of a tile, then dscores
  AlignedBuffer<float> q, grad_out;  // rows of a block of tiles
  PairScratch pairs;
  AlignedBuffer<float> dq, dk, dv;
};

// Queries [begin, end) of the heads of key/value head g of batch b: writes dq there and, to
// dalpha [group], the heads' gradients for alpha. dk and dv are written to the gradients' when
// partial_dk is nullptr, else this range's part of them to partial_dk [S][D], partial_dv [S][Dv].
struct QueryRange {
  int64_t b, g, begin, end;
  double* dalpha = nullptr;
  float* partial_dk = nullptr;
  float* partial_dv = nullptr;
};
void entmax_backward_queries(const EntmaxAttentionParams& p, const EntmaxGradients& gradients,
                             const QueryRange& range, EntmaxBackwardScratch& scratch);

// Rows s0 .. + rows of head (b, g) of `to` = the sum of the parts, which lie part_stride apart.
void entmax_sum_parts(DType dtype, const MutTensor& to, int64_t b, int64_t g, int64_t s0,
                      int64_t rows, int64_t width, const float* parts, int64_t num_parts,
                      int64_t part_stride);

// Queries of the mask slab: writes the mask's gradient there, summed over all batches and heads
// that read the slab.
void entmax_backward_mask(const EntmaxAttentionParams& p, const EntmaxGradients& gradients,
                          const MaskSlab& slab, EntmaxBackwardScratch& scratch);

// What is kept of one query row.
class KeptRow {
 public:
  KeptRow(const EntmaxAttentionParams& p, const EntmaxSupport& kept, int64_t b, int64_t h,
          int64_t t)
      : capacity_(entmax_support_capacity(p.keys)),
        index_bytes_(entmax_support_index_bytes(p.keys)),
        e_(alpha_of(p, h) - 1) {
    const int64_t row = (b * p.heads + h) * p.queries + t;
    stats_ = kept.stats + row * kEntmaxRowStats;
    index_ = static_cast<char*>(kept.index) + row * capacity_ * index_bytes_;
    weight_ = kept.weight + row * capacity_;
  }

  int64_t support() const { return static_cast<int64_t>(stats_[2]); }
  // Whether keys and weights of the support are kept.
  bool complete() const { return support() <= capacity_; }
  // Copies the kept keys and weights.
  void load(int32_t* keys, float* weights) const {
    const int64_t n = support();
    const uint16_t* narrow = reinterpret_cast<const uint16_t*>(index_);
    const uint32_t* wide = reinterpret_cast<const uint32_t*>(index_);
    if (index_bytes_ == 2) {
      for (int64_t i = 0; i < n; i++) keys[i] = narrow[i];
    } else {
      for (int64_t i = 0; i < n; i++) keys[i] = static_cast<int32_t>(wide[i]);
    }
    std::copy(weight_, weight_ + n, weights);
  }
  template <typename Real>
  entmax::Threshold<Real> threshold() const {
    entmax::Threshold<Real> row{static_cast<Real>(e_)};
    if (support() == 0) return row;
    row.max = row.z_min = stats_[0];
    row.shift = row.log_p_min = stats_[1];
    return row;
  }

  // keys(i), weights(i): of entry i of the support.
  template <typename Real, class Keys, class Weights>
  void store(const entmax::Threshold<Real>& row, int64_t support, Keys keys, Weights weights) {
    const bool from_max = e_ <= entmax::kLambdaForm;
    stats_[0] = support == 0 ? 0.0f : static_cast<float>(from_max ? row.max : row.z_min);
    stats_[1] = support == 0 ? 0.0f : static_cast<float>(from_max ? row.shift : row.log_p_min);
    stats_[2] = static_cast<float>(support);
    const int64_t n = support <= capacity_ ? support : 0;
    for (int64_t i = 0; i < n; i++) {
      if (index_bytes_ == 2) {
        reinterpret_cast<uint16_t*>(index_)[i] = static_cast<uint16_t>(keys(i));
      } else {
        reinterpret_cast<uint32_t*>(index_)[i] = static_cast<uint32_t>(keys(i));
      }
      weight_[i] = static_cast<float>(weights(i));
    }
    std::fill(index_ + n * index_bytes_, index_ + capacity_ * index_bytes_, 0);
    std::fill(weight_ + n, weight_ + capacity_, 0.0f);
  }

 private:
  int64_t capacity_, index_bytes_;
  double e_;
  float* stats_;
  char* index_;
  float* weight_;
};

}  // namespace hedgerow::kernels
