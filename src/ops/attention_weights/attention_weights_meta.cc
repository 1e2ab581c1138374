#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/attention_weights/attention_weights.h"
#include "ops/common/struct_operator.h"

namespace hedgerow::ops {
namespace {

at::Tensor attention_weights_meta(const WeightsInputs& in) {
  const c10::SymInt heads = check_attention_weights(in) == WeightsKind::kTalkingHeads
                                ? head_counts(talking_heads_inputs(in, {})).value
                                : in.q.sym_size(1);
  return at::empty_symint({in.q.sym_size(0), heads, in.q.sym_size(2), in.k.sym_size(2)},
                          in.q.options());
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Meta, m) {
  using namespace hedgerow::ops;
  m.impl("attention_weights", kStructKernel<&attention_weights_meta>);
}
