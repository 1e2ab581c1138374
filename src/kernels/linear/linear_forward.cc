// Fast forward: tasks are heads; a head's chunks run in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/linear_forward.cc"
#include "base/parallel.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/linear/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels::linear {
namespace HWY_NAMESPACE {

void run_forward(const ForwardCall& p) {
  const FeatureShape s = feature_shape(p.given, p.map, p.dim, p.width);
  if (p.kv_heads == 0) return;
  // Where the final state replaces the initial one, the heads of a group are one task and run in
  // reverse: the first, whose state goes out, is the last to read it.
  const bool in_place = p.s_in != nullptr && (p.s_out == p.s_in || p.z_out == p.z_in ||
                                              (p.m_in != nullptr && p.m_out == p.m_in));
  const int64_t group = in_place ? p.heads / p.kv_heads : 1;
  parallel_for(p.batch * p.heads / group, [&](int64_t task, int64_t) {
    Arena arena(HeadForward::floats(p, s));
    HeadForward head(p, s, arena);
    const int64_t last = task * group + group - 1;  // of all heads of all sequences
    for (int64_t i = last; i > last - group; i--) head.run(i / p.heads, i % p.heads);
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
