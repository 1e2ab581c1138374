// Fast backward: tasks are key/value heads, each for a range of the batch, so that weight gradients
// are summed in an order that follows from the shapes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/linear_backward.cc"
#include "base/parallel.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/linear/backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels::linear {
namespace HWY_NAMESPACE {

void run_backward(const BackwardCall& p) {
  const FeatureShape s = feature_shape(p.given, p.map, p.dim, p.width);
  if (p.kv_heads == 0) return;
  const int64_t group = p.heads / p.kv_heads, sums = MapGradient::sums(s);
  const int64_t slots = std::max<int64_t>(1, std::min<int64_t>(p.batch, kBatchSlots));
  const int64_t slot_floats = (p.heads + p.kv_heads) * sums;  // dwq of all heads, then dwk
  AlignedBuffer<float> partial(slots * slot_floats);
  parallel_for(slots * p.kv_heads, [&](int64_t task, int64_t) {
    const int64_t slot = task / p.kv_heads, kv = task % p.kv_heads;
    float* dwq = partial.data() + slot * slot_floats + kv * group * sums;
    float* dwk = partial.data() + slot * slot_floats + (p.heads + kv) * sums;
    std::fill_n(dwq, group * sums, 0.0f);
    std::fill_n(dwk, sums, 0.0f);
    Arena arena(HeadBackward::floats(p, s));
    HeadBackward head(p, s, arena);
    for (int64_t b = p.batch * slot / slots; b < p.batch * (slot + 1) / slots; b++) {
      head.run(b, kv, dwq, dwk);
    }
  });
  if (p.given) return;
  parallel_for(p.heads + p.kv_heads, [&](int64_t i, int64_t) {
    AlignedBuffer<float> line(s.width_pad);
    const bool query = i < p.heads;
    store_weight_gradients(p.dtype, s, partial.data() + i * sums, slots, slot_floats,
                           query ? i : i - p.heads, query ? p.grad_wq : p.grad_wk,
                           query ? p.grad_bq : p.grad_bk, line.data());
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels::linear
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hedgerow::kernels::linear {
HWY_EXPORT(run_backward);
void attention_backward(const BackwardCall& p) { HWY_DYNAMIC_DISPATCH(run_backward)(p); }
}  // namespace hedgerow::kernels::linear
#endif  // HWY_ONCE
