// Fast forward: tasks are heads; a head's chunks run in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/linear_forward.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/linear/forward-inl.h"

#include "base/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels::linear {
namespace HWY_NAMESPACE {

void run_forward(const ForwardCall& p) {
  const FeatureShape s = feature_shape(p.given, p.map, p.dim, p.width);
  const int64_t group = p.kv_heads ? p.heads / p.kv_heads : 0;
  parallel_for(p.batch * p.kv_heads, [&](int64_t task, int64_t) {
    Arena arena(HeadForward::floats(p, s));
    HeadForward head(p, s, arena);
    // Heads of a group in reverse: the first, whose state goes out, is the last to read s_in.
    for (int64_t g = group - 1; g >= 0; g--) {
      head.run(task / p.kv_heads, task % p.kv_heads * group + g);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels::linear
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hedgerow::kernels::linear {
HWY_EXPORT(run_forward);
void attention_forward(const ForwardCall& p) { HWY_DYNAMIC_DISPATCH(run_forward)(p); }
}  // namespace hedgerow::kernels::linear
#endif  // HWY_ONCE
