// Policy of talking-heads attention: tiles, tasks, and what tasks add up. No vector code here.
#include "hedgerow/kernels/talking_heads.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "kernels/common/elements.h"
#include "kernels/talking_heads/talking_heads_internal.h"

namespace hedgerow::kernels {
namespace {

// Backward tasks wanted in all, and rows that one should have: what it sums up for all keys and
// values is then added to the others'.
constexpr int64_t kBackwardTasks = 16;
constexpr int64_t kMinTaskRows = 128;

// Rows of queries per tile. Keys and values (and their gradients) stream once per tile, so that few
// rows cost memory traffic; the tile's scores of all heads and keys lie in L2 for few rows and
// beyond it for many. `near` rows where as many fit in about 1 MB, else `far`.
int64_t rows_per_tile(const TalkingHeadsParams& p, int64_t near, int64_t far) {
  constexpr int64_t kCacheBytes = 5 << 18;
  const int64_t bytes = near * p.heads * num_panels(p) * kHeadsPanel * 4;
  return std::clamp<int64_t>(bytes <= kCacheBytes ? near : far, 1, std::max<int64_t>(p.queries, 1));
}
// Measured on a core with 1 MB of L2: forward 24 up to 1,024 keys of 12 heads, 48 beyond; backward,
// whose products with few rows also re-read its gradients, twice as many.
int64_t forward_rows(const TalkingHeadsParams& p) { return rows_per_tile(p, 24, 48); }
int64_t backward_rows(const TalkingHeadsParams& p) { return 2 * forward_rows(p); }

// Query ranges of about equal work, in whole tiles: is_causal gives query t the keys up to
// t + (S - T).
std::vector<int64_t> query_cuts(const TalkingHeadsParams& p, int64_t parts, int64_t tile_rows) {
  std::vector<int64_t> cuts = {0};
  for (int64_t i = 1; i < parts; i++) {
    double share = static_cast<double>(i) / static_cast<double>(parts);
    if (p.is_causal) share = std::sqrt(share);
    const int64_t cut =
        static_cast<int64_t>(share * static_cast<double>(p.queries)) / tile_rows * tile_rows;
    if (cut > cuts.back()) cuts.push_back(cut);
  }
  cuts.push_back(p.queries);
  return cuts;
}

void set_zeros(AlignedBuffer<float>& buffer, int64_t size) {
  if (buffer.size() != size) buffer.resize(size);
  std::fill(buffer.data(), buffer.data() + size, 0.0f);
}

// Adds what tasks have summed up in the order of their numbers, whichever ends first: workers wait
// for their turn, so that each needs room for one task alone. Tasks that come first must have begun
// first.
class InTurn {
 public:
  explicit InTurn(int64_t lanes) : next_(lanes) {}

  // Calls add() when tasks 0 .. task - 1 of the lane have added.
  template <class F>
  void operator()(int64_t lane, int64_t task, F add) {
    std::unique_lock<std::mutex> lock(mutex_);
    turn_.wait(lock, [&] { return failed_ || next_[lane] == task; });
    if (failed_) return;
    lock.unlock();
    add();
    lock.lock();
    next_[lane]++;
    turn_.notify_all();
  }
  // A task ended by an exception: nobody need wait for it.
  void fail() {
    const std::lock_guard<std::mutex> lock(mutex_);
    failed_ = true;
    turn_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable turn_;
  std::vector<int64_t> next_;
  bool failed_ = false;
};

void add_to(AlignedBuffer<float>& total, const AlignedBuffer<float>& part) {
  for (int64_t i = 0; i < total.size(); i++) total[i] += part[i];
}
// Panels of `size`: the total has sums in the first `have`, the part in the first n.
void add_panels(AlignedBuffer<float>& total, int64_t have, const AlignedBuffer<float>& part,
                int64_t n, int64_t size) {
  const int64_t both = std::min(have, n) * size;
  for (int64_t i = 0; i < both; i++) total[i] += part[i];
  std::copy(part.data() + both, part.data() + std::max(both, n * size), total.data() + both);
}
void add_to(std::vector<double>& total, const std::vector<double>& part) {
  for (size_t i = 0; i < total.size(); i++) total[i] += part[i];
}

// Sizes of the dimensions of a mask's gradient; those it broadcasts over have 1.
struct MaskSizes {
  int64_t batch, heads, queries, keys;
  MaskSizes(const TalkingHeadsParams& p, const MaskGradient& m)
      : batch(m.batch_stride ? p.batch : 1),
        heads(m.head_stride ? p.heads : 1),
        queries(m.query_stride ? p.queries : 1),
        keys(m.key_stride ? p.keys : 1) {}
  int64_t count() const { return batch * heads * queries * keys; }
  // f(index in the gradient, index in a contiguous copy)
  template <class F>
  void for_each(const MaskGradient& m, F f) const {
    for (int64_t i = 0; i < count(); i++) {
      const int64_t s = i % keys, t = i / keys % queries, h = i / keys / queries % heads;
      f(i / keys / queries / heads * m.batch_stride + h * m.head_stride + t * m.query_stride +
            s * m.key_stride,
        i);
    }
  }
};

class Backward {
 public:
  Backward(const TalkingHeadsParams& p, const TalkingHeadsGradients& g)
      : p_(p),
        g_(g),
        mask_dtype_(p.mask.kind == MaskKind::kFloat64 ? DType::kFloat64 : DType::kFloat32),
        mask_sizes_(p, g.dmask),
        tile_rows_(backward_rows(p)),
        packed_(pack_heads(p, /*backward=*/true)),
        in_turn_(p.batch) {
    // A mask that batches share has their gradients added in order: one task for all batches.
    joined_ = g.dmask.data != nullptr && g.dmask.batch_stride == 0 && p.batch > 1;
    const int64_t streams = joined_ ? 1 : std::max<int64_t>(p.batch, 1);
    const int64_t parts =
        std::clamp<int64_t>(p.queries / kMinTaskRows, 1, divide_up(kBackwardTasks, streams));
    cuts_ = query_cuts(p, parts, tile_rows_);
    parts_ = static_cast<int64_t>(cuts_.size()) - 1;
    totals_.resize(p.batch);
  }

  void run() {
    clear_mask();
    const int64_t tasks = joined_ ? parts_ : p_.batch * parts_;
    std::vector<HeadsScratch> scratch(max_workers(tasks));
    std::vector<HeadsSums> sums(max_workers(tasks));
    parallel_for(tasks, [&](int64_t task, int64_t worker) {
      const int64_t first = joined_ ? 0 : task / parts_, last = joined_ ? p_.batch : first + 1;
      try {
        for (int64_t b = first; b < last; b++) {
          run_task(b, task % parts_, sums[worker], scratch[worker]);
        }
      } catch (...) {
        in_turn_.fail();
        throw;
      }
    });
    parallel_for(p_.batch * num_panels(p_), [&](int64_t task, int64_t) {
      store_panel(task / num_panels(p_), task % num_panels(p_));
    });
    store_totals();
  }

 private:
  void run_task(int64_t b, int64_t part, HeadsSums& sums, HeadsScratch& scratch) {
    const int64_t keys = num_panels(p_) * kHeadsPanel;
    const int64_t logits = p_.key_heads * p_.heads, weights = p_.heads * p_.value_heads;
    reserve(sums.dk, keys * p_.key_kv_heads * packed_.key_stride);
    reserve(sums.dv, keys * p_.value_kv_heads * packed_.value_stride);
    sums.panels = 0;
    set_zeros(sums.dm_logits, g_.dm_logits ? keys * logits : 0);
    set_zeros(sums.dm_weights, g_.dm_weights ? keys * weights : 0);
    sums.dlogits_proj.assign(g_.dlogits_proj ? logits : 0, 0.0);
    sums.dweights_proj.assign(g_.dweights_proj ? weights : 0, 0.0);
    sums.dalpha.assign(p_.heads, 0.0);
    sums.mask = task_mask(sums);
    for (int64_t t0 = cuts_[part]; t0 < cuts_[part + 1]; t0 += tile_rows_) {
      const HeadsTile tile{b, t0, std::min(tile_rows_, cuts_[part + 1] - t0)};
      talking_heads_backward_tile(p_, g_, packed_, tile_rows_, tile, sums, scratch);
    }
    in_turn_(b, part, [&] {
      HeadsSums& total = totals_[b];
      if (part == 0) return std::swap(total, sums);
      add_panels(total.dk, total.panels, sums.dk, sums.panels,
                 p_.key_kv_heads * kHeadsPanel * packed_.key_stride);
      add_panels(total.dv, total.panels, sums.dv, sums.panels,
                 p_.value_kv_heads * kHeadsPanel * packed_.value_stride);
      total.panels = std::max(total.panels, sums.panels);
      for (auto member : {&HeadsSums::dm_logits, &HeadsSums::dm_weights}) {
        add_to(total.*member, sums.*member);
      }
      for (auto member : {&HeadsSums::dlogits_proj, &HeadsSums::dweights_proj, &HeadsSums::dalpha,
                          &HeadsSums::mask_rows}) {
        add_to(total.*member, sums.*member);
      }
    });
  }

  // Rows of a mask belong to one task, which adds to them in place; a row that queries share has a
  // copy in each task.
  MaskGradient task_mask(HeadsSums& sums) const {
    MaskGradient m = g_.dmask;
    sums.mask_dtype = mask_dtype_;
    if (m.data == nullptr || m.query_stride != 0) return m;
    sums.mask_rows.assign(mask_sizes_.count(), 0.0);
    sums.mask_dtype = DType::kFloat64;
    m.data = sums.mask_rows.data();
    m.key_stride = m.key_stride ? 1 : 0;
    m.head_stride = m.head_stride ? mask_sizes_.keys : 0;
    m.batch_stride = m.batch_stride ? mask_sizes_.keys * mask_sizes_.heads : 0;
    return m;
  }

  void clear_mask() const {
    if (g_.dmask.data == nullptr) return;
    mask_sizes_.for_each(
        g_.dmask, [&](int64_t at, int64_t) { store_element(mask_dtype_, g_.dmask.data, at, 0.0); });
  }

  // dk, dv and the m terms at the panel's keys.
  void store_panel(int64_t b, int64_t panel) {
    const int64_t s0 = panel * kHeadsPanel, n = std::min(kHeadsPanel, p_.keys - s0);
    store_rows(b, panel, n, &HeadsSums::dk, p_.key_kv_heads, p_.width, packed_.key_stride, g_.dk);
    store_rows(b, panel, n, &HeadsSums::dv, p_.value_kv_heads, p_.value_width, packed_.value_stride,
               g_.dv);
    store_terms(b, panel, n, &HeadsSums::dm_logits, p_.key_heads * p_.heads, g_.dm_logits);
    store_terms(b, panel, n, &HeadsSums::dm_weights, p_.heads * p_.value_heads, g_.dm_weights);
  }

  void store_rows(int64_t b, int64_t panel, int64_t n, AlignedBuffer<float> HeadsSums::*from,
                  int64_t heads, int64_t width, int64_t stride, const MutTensor& to) {
    for (int64_t h = 0; h < heads; h++) {
      for (int64_t r = 0; r < n; r++) {
        const int64_t at = ((panel * heads + h) * kHeadsPanel + r) * stride;
        const float* row = panel < totals_[b].panels ? (totals_[b].*from).data() + at : nullptr;
        const int64_t first = row_index(to, b, h, panel * kHeadsPanel + r);
        for (int64_t d = 0; d < width; d++) {
          store_element(p_.dtype, to.data, first + d, row ? row[d] : 0.0f);
        }
      }
    }
  }

  void store_terms(int64_t b, int64_t panel, int64_t n, AlignedBuffer<float> HeadsSums::*from,
                   int64_t terms, void* to) {
    if (to == nullptr) return;
    for (int64_t r = 0; r < n; r++) {
      float* row = static_cast<float*>(to) + (b * p_.keys + panel * kHeadsPanel + r) * terms;
      for (int64_t i = 0; i < terms; i++) {
        row[i] = (totals_[b].*from)[(panel * terms + i) * kHeadsPanel + r];
      }
    }
  }

  void store_totals() {
    store_total(&HeadsSums::dlogits_proj, p_.key_heads * p_.heads, g_.dlogits_proj);
    store_total(&HeadsSums::dweights_proj, p_.heads * p_.value_heads, g_.dweights_proj);
    for (int64_t h = 0; h < p_.heads && g_.dalpha != nullptr; h++) {
      g_.dalpha[h] = total(&HeadsSums::dalpha, h);
    }
    if (g_.dmask.data == nullptr || g_.dmask.query_stride != 0) return;
    mask_sizes_.for_each(g_.dmask, [&](int64_t at, int64_t i) {
      store_element(mask_dtype_, g_.dmask.data, at, total(&HeadsSums::mask_rows, i));
    });
  }
  void store_total(std::vector<double> HeadsSums::*from, int64_t size, void* to) {
    for (int64_t i = 0; i < size && to != nullptr; i++) {
      static_cast<float*>(to)[i] = static_cast<float>(total(from, i));
    }
  }
  double total(std::vector<double> HeadsSums::*from, int64_t i) const {
    double sum = 0;
    for (const HeadsSums& batch : totals_) sum += (batch.*from)[i];
    return sum;
  }

  const TalkingHeadsParams& p_;
  const TalkingHeadsGradients& g_;
  DType mask_dtype_;
  MaskSizes mask_sizes_;
  int64_t tile_rows_;
  PackedHeads packed_;
  bool joined_ = false;
  std::vector<int64_t> cuts_;
  int64_t parts_ = 0;
  std::vector<HeadsSums> totals_;  // [B]
  InTurn in_turn_;
};

}  // namespace

void talking_heads_forward(const TalkingHeadsParams& p, const MutTensor& out) {
  if (p.dtype == DType::kFloat64) return talking_heads_forward_reference(p, out);
  const int64_t tile_rows = forward_rows(p), tiles = divide_up(p.queries, tile_rows);
  const PackedHeads packed = pack_heads(p, /*backward=*/false);
  std::vector<HeadsScratch> scratch(max_workers(p.batch * tiles));
  parallel_for(p.batch * tiles, [&](int64_t task, int64_t worker) {
    // last queries first: with is_causal they are the long ones
    const int64_t t0 = (tiles - 1 - task % tiles) * tile_rows;
    const HeadsTile tile{task / tiles, t0, std::min(tile_rows, p.queries - t0)};
    talking_heads_forward_tile(p, packed, tile_rows, tile, out, scratch[worker]);
  });
}

void talking_heads_backward(const TalkingHeadsParams& p, const TalkingHeadsGradients& g) {
  if (p.dtype == DType::kFloat64) return talking_heads_backward_reference(p, g);
  Backward(p, g).run();
}

}  // namespace hedgerow::kernels
