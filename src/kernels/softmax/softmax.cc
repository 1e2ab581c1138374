// Policy of softmax attention: what runs where, in which pieces. No vector code here.
#include "hedgerow/kernels/softmax.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/parallel.h"
#include "kernels/softmax/softmax_internal.h"

namespace hedgerow::kernels {
namespace {

// Forward tasks wanted in all, so that they balance on many cores; a task is a run of tiles of one
// key/value head, whose keys a worker packs once.
constexpr int64_t kForwardTasks = 96;
// Backward tasks wanted; a task is a range of at least kMinKeys keys of one key/value head, since
// every range packs the head's queries again and keeps its own part of dq.
constexpr int64_t kBackwardTasks = 24;
constexpr int64_t kMinKeys = 512;

// Key ranges of about equal work: is_causal leaves key s the queries from s - (S - T) on.
std::vector<int64_t> key_cuts(const SoftmaxParams& p) {
  const int64_t kv_heads = p.batch * p.kv_heads;
  const int64_t parts =
      std::clamp<int64_t>(p.keys / kMinKeys, 1, divide_up(kBackwardTasks, kv_heads));
  std::vector<int64_t> cuts = {0};
  for (int64_t i = 1; i < parts; i++) {
    double share = static_cast<double>(i) / parts;
    if (p.is_causal) share = 1.0 - std::sqrt(1.0 - share);
    const int64_t cut = static_cast<int64_t>(share * p.keys) / kKeyTile * kKeyTile;
    if (cut > cuts.back()) cuts.push_back(cut);
  }
  cuts.push_back(p.keys);
  return cuts;
}

void backward_mask(const SoftmaxParams& p, const SoftmaxGradients& gradients) {
  const MaskGradient& m = gradients.dmask;
  const int64_t batches = m.batch_stride ? p.batch : std::min<int64_t>(p.batch, 1);
  const int64_t heads = m.head_stride ? p.heads : std::min<int64_t>(p.heads, 1);
  const int64_t rows = m.query_stride ? kQueryTile : std::max<int64_t>(p.queries, 1);
  const int64_t runs = divide_up(p.queries, rows);
  const int64_t tasks = batches * heads * runs;
  std::vector<BackwardScratch> scratch(max_workers(tasks));
  parallel_for(tasks, [&](int64_t task, int64_t worker) {
    const int64_t begin = task % runs * rows, slab = task / runs;
    softmax_backward_mask(p, gradients,
                          {slab / heads, slab % heads, begin, std::min(p.queries, begin + rows)},
                          scratch[worker]);
  });
}

}  // namespace

void softmax_attention_forward(const SoftmaxParams& p, const MutTensor& out, float* lse) {
  if (p.dtype == DType::kFloat64) return softmax_attention_forward_reference(p, out, lse);
  const int64_t kv_heads = p.batch * p.kv_heads;
  if (kv_heads == 0 || p.queries == 0) return;
  const int64_t tiles = divide_up(p.queries, kQueryTile);
  const int64_t items = tiles * group_size(p);  // of one key/value head
  const int64_t run = divide_up(items, std::min(items, divide_up(kForwardTasks, kv_heads)));
  const int64_t runs = divide_up(items, run);
  const int64_t tasks = kv_heads * runs;
  std::vector<ForwardScratch> scratch(max_workers(tasks));
  parallel_for(tasks, [&](int64_t task, int64_t worker) {
    const int64_t head = task / runs, first = task % runs * run;
    for (int64_t item = first; item < std::min(items, first + run); item++) {
      // last queries first: with is_causal they are the long ones
      const int64_t t0 = (tiles - 1 - item / group_size(p)) * kQueryTile;
      const ForwardTile tile{head / p.kv_heads,
                             head % p.kv_heads * group_size(p) + item % group_size(p), t0,
                             std::min(kQueryTile, p.queries - t0)};
      softmax_forward_tile(p, out, lse, tile, scratch[worker]);
    }
  });
}

void softmax_attention_backward(const SoftmaxParams& p, const SoftmaxGradients& gradients) {
  if (p.dtype == DType::kFloat64) return softmax_attention_backward_reference(p, gradients);
  if (gradients.dmask.data != nullptr) backward_mask(p, gradients);
  const int64_t kv_heads = p.batch * p.kv_heads, group = group_size(p);
  if (kv_heads == 0) return;
  const std::vector<int64_t> cuts = key_cuts(p);
  const int64_t parts = static_cast<int64_t>(cuts.size()) - 1;
  const int64_t head_size = p.queries * p.width;
  AlignedBuffer<float> dq(parts > 1 ? kv_heads * parts * group * head_size : 0);
  std::vector<BackwardScratch> scratch(max_workers(kv_heads * parts));
  parallel_for(kv_heads * parts, [&](int64_t task, int64_t worker) {
    const int64_t head = task / parts, part = task % parts;
    float* partial = parts > 1 ? dq.data() + task * group * head_size : nullptr;
    softmax_backward_keys(
        p, gradients, {head / p.kv_heads, head % p.kv_heads, cuts[part], cuts[part + 1], partial},
        scratch[worker]);
  });
  if (parts == 1) return;
  const int64_t tiles = divide_up(p.queries, kQueryTile);
  parallel_for(p.batch * p.heads * tiles, [&](int64_t task, int64_t) {
    const int64_t bh = task / tiles, t0 = task % tiles * kQueryTile;
    const int64_t head = bh / group, member = bh % group;
    softmax_sum_dq(p, gradients.dq, bh / p.heads, bh % p.heads, t0,
                   std::min(kQueryTile, p.queries - t0),
                   dq.data() + (head * parts * group + member) * head_size + t0 * p.width, parts,
                   group * head_size);
  });
}

}  // namespace hedgerow::kernels
