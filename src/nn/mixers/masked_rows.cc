#include "nn/mixers/masked_rows.h"

#include <ATen/ATen.h>

#include <limits>

namespace hedgerow::nn {

at::Tensor grouped_matmul(const at::Tensor& a, const at::Tensor& b) {
  const int64_t batch = a.size(0), heads = a.size(1), kv_heads = b.size(1);
  if (heads == kv_heads) return at::matmul(a, b.transpose(2, 3));
  const int64_t rows = heads / kv_heads * a.size(2);  // queries of one key head, G * T
  const at::Tensor grouped = a.reshape({batch, kv_heads, rows, a.size(3)});
  return at::matmul(grouped, b.transpose(2, 3)).view({batch, heads, a.size(2), b.size(2)});
}

std::pair<at::Tensor, at::Tensor> grouped_matmul_backward(const at::Tensor& gradient,
                                                          const at::Tensor& a,
                                                          const at::Tensor& b) {
  const int64_t batch = a.size(0), kv_heads = b.size(1);
  const int64_t rows = a.size(1) / kv_heads * a.size(2);  // G * T
  const at::Tensor g = gradient.reshape({batch, kv_heads, rows, b.size(2)});
  const at::Tensor grouped = a.reshape({batch, kv_heads, rows, a.size(3)});
  return {at::matmul(g, b).view(a.sizes()), at::matmul(g.transpose(2, 3), grouped)};
}

at::Tensor log_normalise(const at::Tensor& scores, const std::optional<at::Tensor>& visible) {
  if (!visible) return scores.log_softmax(-1);
  constexpr double kMinusInf = -std::numeric_limits<double>::infinity();
  const at::Tensor excluded = visible->logical_not();
  // A row of nothing but -inf would give NaN: leave blind rows finite until the end.
  const at::Tensor sees = visible->any(-1, /*keepdim=*/true);
  const at::Tensor filled = scores.masked_fill(excluded.logical_and(sees), kMinusInf);
  return filled.log_softmax(-1).masked_fill(excluded, kMinusInf);
}

at::Tensor log_with_floor(const at::Tensor& p, const std::optional<at::Tensor>& visible) {
  constexpr double kFloor = 1e-6;
  // The floor moves with the row (also in the gradient), so that scaling all features down, which
  // changes no weight, does not look like a gain.
  const at::Tensor mean = visible
                              ? p.masked_fill(visible->logical_not(), 0).sum(-1, /*keepdim=*/true) /
                                    visible->sum(-1, /*keepdim=*/true).clamp_min(1)
                              : p.mean(-1, /*keepdim=*/true);
  return (p + kFloor * mean.clamp_min(kFloor)).log();
}

at::Tensor log_of_weights(const at::Tensor& p, const AttentionMask& mask) {
  const std::optional<at::Tensor> visible = mask.visible(p.size(2), p.size(3));
  return log_normalise(log_with_floor(p, visible), visible);
}

}  // namespace hedgerow::nn
