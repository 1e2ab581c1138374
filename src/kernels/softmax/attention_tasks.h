// How attention kernels with tiles of queries cut their work: the same for every mechanism.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "kernels/softmax/softmax_internal.h"

namespace hedgerow::kernels {

// Forward tasks wanted in all, so that they balance on many cores; a task is a run of tiles of one
// key/value head, whose keys a worker packs once.
inline constexpr int64_t kForwardTasks = 96;

// body(tile, scratch) for every tile of `tile_rows` queries of every head, in parallel, each worker
// with a Scratch of its own; begin(scratch) starts each task.
template <class Scratch, class Begin, class Body>
void for_query_tiles(const SoftmaxParams& p, int64_t tile_rows, const Begin& begin,
                     const Body& body) {
  const int64_t kv_heads = p.batch * p.kv_heads;
  if (kv_heads == 0 || p.heads == 0 || p.queries == 0) return;
  const int64_t tiles = divide_up(p.queries, tile_rows);
  const int64_t items = tiles * group_size(p);  // of one key/value head
  const int64_t run = divide_up(items, std::min(items, divide_up(kForwardTasks, kv_heads)));
  const int64_t runs = divide_up(items, run);
  const int64_t tasks = kv_heads * runs;
  std::vector<Scratch> scratch(max_workers(tasks));
  parallel_for(tasks, [&](int64_t task, int64_t worker) {
    const int64_t head = task / runs, first = task % runs * run;
    begin(scratch[worker]);
    for (int64_t item = first; item < std::min(items, first + run); item++) {
      // last queries first: with is_causal they are the long ones
      const int64_t t0 = (tiles - 1 - item / group_size(p)) * tile_rows;
      const ForwardTile tile{head / p.kv_heads,
                             head % p.kv_heads * group_size(p) + item % group_size(p), t0,
                             std::min(tile_rows, p.queries - t0)};
      body(tile, scratch[worker]);
    }
  });
}

// body(slab, scratch) for every slab of the mask's gradient, `slab_rows` queries at a time, or all
// where they share one row.
template <class Scratch, class Body>
void for_mask_slabs(const SoftmaxParams& p, const MaskGradient& m, int64_t slab_rows,
                    const Body& body) {
  const int64_t batches = m.batch_stride ? p.batch : std::min<int64_t>(p.batch, 1);
  const int64_t heads = m.head_stride ? p.heads : std::min<int64_t>(p.heads, 1);
  const int64_t rows = m.query_stride ? slab_rows : std::max<int64_t>(p.queries, 1);
  const int64_t runs = divide_up(p.queries, rows);
  const int64_t tasks = batches * heads * runs;
  std::vector<Scratch> scratch(max_workers(tasks));
  parallel_for(tasks, [&](int64_t task, int64_t worker) {
    const int64_t begin = task % runs * rows, slab = task / runs;
    body(MaskSlab{slab / heads, slab % heads, begin, std::min(p.queries, begin + rows)},
         scratch[worker]);
  });
}

}  // namespace hedgerow::kernels
