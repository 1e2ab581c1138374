#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/attention_weights/attention_weights.h"

namespace hedgerow::ops {
namespace {

at::Tensor attention_weights_meta(std::string_view kind, const at::Tensor& q, const at::Tensor& k,
                                  const OptTensor& attn_mask, bool is_causal,
                                  std::optional<double> scale, const OptTensor& wq,
                                  const OptTensor& wk, const OptTensor& bq, const OptTensor& bk,
                                  std::string_view variant, const OptTensor& key_mask,
                                  const OptTensor& alpha) {
  check_attention_weights(kind, {q, k, attn_mask, is_causal, scale, wq, wk, bq, bk,
                                 std::string(variant), key_mask, alpha});
  return at::empty_symint({q.sym_size(0), q.sym_size(1), q.sym_size(2), k.sym_size(2)},
                          q.options());
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Meta, m) {
  m.impl("attention_weights", hedgerow::ops::attention_weights_meta);
}
