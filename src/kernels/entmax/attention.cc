// Policy of entmax attention: what is kept, what runs where, in which pieces. No vector code here.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/parallel.h"
#include "hedgerow/kernels/entmax_attention.h"
#include "kernels/entmax/attention_internal.h"
#include "kernels/softmax/attention_tasks.h"

namespace hedgerow::kernels {
namespace {

// Backward tasks wanted; a task is a range of at least kMinQueries queries of one key/value head,
// since every range packs the head's keys again and keeps its own part of dk and dv.
constexpr int64_t kBackwardTasks = 12;
constexpr int64_t kMinQueries = 512;
// 12 bytes of statistics and 96 x 6 or 72 x 8 bytes of entries are 588 bytes a row.
constexpr int64_t kNarrowCapacity = 96;
constexpr int64_t kWideCapacity = 72;
constexpr int64_t kNarrowKeys = 65536;

// Query ranges of about equal work: with is_causal later queries see more keys.
std::vector<int64_t> query_cuts(const EntmaxAttentionParams& p) {
  const int64_t kv_heads = p.batch * p.kv_heads;
  const int64_t parts =
      std::clamp<int64_t>(p.queries / kMinQueries, 1, divide_up(kBackwardTasks, kv_heads));
  std::vector<int64_t> cuts = {0};
  for (int64_t i = 1; i < parts; i++) {
    double share = static_cast<double>(i) / static_cast<double>(parts);
    if (p.is_causal) share = std::sqrt(share);
    const int64_t cut = static_cast<int64_t>(share * static_cast<double>(p.queries)) / kRowTile;
    if (cut * kRowTile > cuts.back()) cuts.push_back(cut * kRowTile);
  }
  cuts.push_back(p.queries);
  return cuts;
}

// dk and dv of every head: the sums of the parts, [B Hkv][part][S][width].
void sum_parts(const EntmaxAttentionParams& p, const MutTensor& to, int64_t width,
               const AlignedBuffer<float>& parts, int64_t num_parts) {
  constexpr int64_t kRows = 64;
  const int64_t runs = divide_up(p.keys, kRows), stride = p.keys * width;
  parallel_for(p.batch * p.kv_heads * runs, [&](int64_t task, int64_t) {
    const int64_t head = task / runs, s0 = task % runs * kRows;
    entmax_sum_parts(p.dtype, to, head / p.kv_heads, head % p.kv_heads, s0,
                     std::min(kRows, p.keys - s0), width,
                     parts.data() + head * num_parts * stride + s0 * width, num_parts, stride);
  });
}

}  // namespace

int64_t entmax_support_capacity(int64_t keys) {
  return std::min(keys, keys <= kNarrowKeys ? kNarrowCapacity : kWideCapacity);
}

int64_t entmax_support_index_bytes(int64_t keys) { return keys <= kNarrowKeys ? 2 : 4; }

void entmax_attention_forward(const EntmaxAttentionParams& p, const MutTensor& out,
                              const EntmaxSupport* support) {
  if (p.dtype == DType::kFloat64) return entmax_attention_forward_reference(p, out, support);
  const bool screens = can_screen();
  for_query_tiles<EntmaxForwardScratch>(
      p, kRowTile,
      [&](EntmaxForwardScratch& scratch) {
        scratch.screen.allowed = screens;
        scratch.screen.head = -1;  // tasks know nothing of each other
      },
      [&](const ForwardTile& tile, EntmaxForwardScratch& scratch) {
        entmax_forward_tile(p, out, support, tile, scratch);
      });
}

void entmax_attention_backward(const EntmaxAttentionParams& p, const EntmaxGradients& gradients) {
  if (p.dtype == DType::kFloat64) return entmax_attention_backward_reference(p, gradients);
  if (gradients.dmask.data != nullptr) {
    for_mask_slabs<EntmaxBackwardScratch>(
        p, gradients.dmask, 4 * kRowTile,
        [&](const MaskSlab& slab, EntmaxBackwardScratch& scratch) {
          entmax_backward_mask(p, gradients, slab, scratch);
        });
  }
  const int64_t kv_heads = p.batch * p.kv_heads, group = group_size(p);
  if (gradients.dalpha != nullptr) std::fill_n(gradients.dalpha, p.heads, 0.0);
  if (kv_heads == 0) return;
  const std::vector<int64_t> cuts = query_cuts(p);
  const int64_t parts = static_cast<int64_t>(cuts.size()) - 1, tasks = kv_heads * parts;
  AlignedBuffer<float> dk(parts > 1 ? tasks * p.keys * p.width : 0);
  AlignedBuffer<float> dv(parts > 1 ? tasks * p.keys * p.value_width : 0);
  std::vector<double> dalpha(tasks * group);
  std::vector<EntmaxBackwardScratch> scratch(max_workers(tasks));
  parallel_for(tasks, [&](int64_t task, int64_t worker) {
    const int64_t head = task / parts, part = task % parts;
    QueryRange range{head / p.kv_heads, head % p.kv_heads, cuts[part], cuts[part + 1]};
    range.dalpha = dalpha.data() + task * group;
    if (parts > 1) {
      range.partial_dk = dk.data() + task * p.keys * p.width;
      range.partial_dv = dv.data() + task * p.keys * p.value_width;
    }
    entmax_backward_queries(p, gradients, range, scratch[worker]);
  });
  if (parts > 1) {
    sum_parts(p, gradients.dk, p.width, dk, parts);
    sum_parts(p, gradients.dv, p.value_width, dv, parts);
  }
  for (int64_t i = 0; gradients.dalpha != nullptr && i < tasks * group; i++) {
    const int64_t g = i / group / parts % p.kv_heads;
    gradients.dalpha[g * group + i % group] += dalpha[i];
  }
}

}  // namespace hedgerow::kernels
