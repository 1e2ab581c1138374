// Policy of softmax attention: what runs where, in which pieces. No vector code here.
#include "hedgerow/kernels/softmax.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/parallel.h"
#include "kernels/softmax/attention_tasks.h"

namespace hedgerow::kernels {
namespace {

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

}  // namespace

void softmax_attention_forward(const SoftmaxParams& p, const MutTensor& out, float* lse) {
  if (p.dtype == DType::kFloat64) return softmax_attention_forward_reference(p, out, lse);
  for_query_tiles<ForwardScratch>(
      p, kQueryTile, [](ForwardScratch&) {},
      [&](const ForwardTile& tile, ForwardScratch& scratch) {
        softmax_forward_tile(p, out, lse, tile, scratch);
      });
}

void softmax_attention_backward(const SoftmaxParams& p, const SoftmaxGradients& gradients) {
  if (p.dtype == DType::kFloat64) return softmax_attention_backward_reference(p, gradients);
  if (gradients.dmask.data != nullptr) {
    for_mask_slabs<BackwardScratch>(p, gradients.dmask, kQueryTile,
                                    [&](const MaskSlab& slab, BackwardScratch& scratch) {
                                      softmax_backward_mask(p, gradients, slab, scratch);
                                    });
  }
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
