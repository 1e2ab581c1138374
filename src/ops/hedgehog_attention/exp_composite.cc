#include "ops/hedgehog_attention/exp_composite.h"

#include <ATen/ATen.h>

#include <limits>
#include <vector>

namespace hedgerow::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kChunk = 16;  // pairs of a chunk are summed feature by feature: [n, n, F] numbers

// -inf (nothing seen) becomes 0, so that differences with it are never inf - inf.
at::Tensor finite_reference(const at::Tensor& m) { return m.masked_fill(m == -kInf, 0); }

// Largest exponent of a row, over its features: a + m; [..,n,1].
at::Tensor row_reference(const at::Tensor& a, const at::Tensor& m) {
  return finite_reference((a.detach() + m).amax(-1, true));
}

// Terms exp(a_t + b_s - reference_t) summed over features, for pairs s <= t: [..,n,n].
at::Tensor chunk_weights(const at::Tensor& a, const at::Tensor& b, const at::Tensor& reference) {
  const int64_t n = a.size(-2);
  const at::Tensor future =
      at::ones({n, n}, a.options().dtype(at::kBool).requires_grad(false)).triu(1).unsqueeze(-1);
  const at::Tensor exponents =
      a.unsqueeze(-2) + b.unsqueeze(-3) - reference.unsqueeze(-1);  // [..,n,n,F]
  return exponents.masked_fill(future, -kInf).exp().sum(-1);
}

// Running maximum over a chunk's keys that starts at m [..,F]: [..,n,F].
at::Tensor running_maximum(const at::Tensor& b, const at::Tensor& m) {
  return at::maximum(std::get<0>(b.detach().cummax(-2)), m.unsqueeze(-2));
}

at::Tensor maximum_over_keys(const at::Tensor& b, const at::Tensor& m) {
  return b.size(-2) == 0 ? m : at::maximum(m, b.detach().amax(-2));
}

}  // namespace

ExpState ExpState::empty(int64_t batch, int64_t kv_heads, int64_t features, int64_t value_dim,
                         const at::TensorOptions& options) {
  return {at::zeros({batch, kv_heads, 1, features, value_dim}, options),
          at::zeros({batch, kv_heads, 1, features}, options),
          at::full({batch, kv_heads, 1, features}, -kInf, options)};
}

void ExpState::absorb(const at::Tensor& b, const at::Tensor& v) {
  const at::Tensor top = maximum_over_keys(b, m), reference = finite_reference(top);
  const at::Tensor decay = (m - reference).exp();
  const at::Tensor phi = (b - reference.unsqueeze(-2)).exp();  // [B,Hkv,1,n,F]
  s = s * decay.unsqueeze(-1) + at::matmul(phi.transpose(-1, -2), v);
  z = z * decay + phi.sum(-2);
  m = top;
}

ExpRows exp_rows(const at::Tensor& a, const ExpState& state) {
  const at::Tensor m = state.m.unsqueeze(-2), reference = row_reference(a, m);
  const at::Tensor phi = (a + m - reference).exp();
  return {at::matmul(phi, state.s), at::matmul(phi, state.z.unsqueeze(-1)), reference};
}

ExpRows exp_rows_causal(const at::Tensor& a, const at::Tensor& b, const at::Tensor& v,
                        const CausalSpan& span, ExpState& state) {
  std::vector<at::Tensor> nums, dens, references;
  const auto add = [&](const ExpRows& rows) {
    nums.push_back(rows.num);
    dens.push_back(rows.den);
    references.push_back(rows.reference);
  };
  state.absorb(b.narrow(-2, 0, span.prefix), v.narrow(-2, 0, span.prefix));
  add(exp_rows(a.narrow(-2, 0, span.blind), state));
  for (int64_t at = 0; at < span.pairs; at += kChunk) {
    const int64_t n = std::min(kChunk, span.pairs - at);
    const at::Tensor ac = a.narrow(-2, span.blind + at, n), bc = b.narrow(-2, span.prefix + at, n),
                     vc = v.narrow(-2, span.prefix + at, n);
    const at::Tensor reference = row_reference(ac, running_maximum(bc, state.m));
    const at::Tensor phi = (ac + state.m.unsqueeze(-2) - reference).exp();
    const at::Tensor weights = chunk_weights(ac, bc, reference);
    add({at::matmul(phi, state.s) + at::matmul(weights, vc),
         at::matmul(phi, state.z.unsqueeze(-1)) + weights.sum(-1, true), reference});
    state.absorb(bc, vc);
  }
  return {at::cat(nums, -2), at::cat(dens, -2), at::cat(references, -2)};
}

ExpFeatures exp_features(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor nothing = at::full({}, -kInf, b.options().requires_grad(false));
  const at::Tensor m =
      maximum_over_keys(b, nothing.expand({b.size(0), b.size(1), b.size(2), b.size(4)}))
          .unsqueeze(-2);
  return {(a + m - row_reference(a, m)).exp(), (b - finite_reference(m)).exp()};
}

at::Tensor exp_weights_causal(const at::Tensor& a, const at::Tensor& b, const CausalSpan& span) {
  const int64_t keys = b.size(-2);
  std::vector<at::Tensor> rows;
  const auto padded = [&](const std::vector<at::Tensor>& parts) {  // to all keys
    const at::Tensor row = at::cat(parts, -1);
    return at::constant_pad_nd(row, {0, keys - row.size(-1)});
  };
  if (span.blind > 0 || span.pairs == 0)
    rows.push_back(
        padded({at::matmul(a.narrow(-2, 0, span.blind), b.narrow(-2, 0, 0).transpose(-1, -2))}));
  at::Tensor m = at::full({b.size(0), b.size(1), b.size(2), b.size(4)}, -kInf,
                          b.options().requires_grad(false));
  m = maximum_over_keys(b.narrow(-2, 0, span.prefix), m);
  for (int64_t at = 0; at < span.pairs; at += kChunk) {
    const int64_t n = std::min(kChunk, span.pairs - at), past = span.prefix + at;
    const at::Tensor ac = a.narrow(-2, span.blind + at, n), bc = b.narrow(-2, past, n);
    const at::Tensor reference = row_reference(ac, running_maximum(bc, m));
    const at::Tensor phi_q = (ac + m.unsqueeze(-2) - reference).exp();
    const at::Tensor phi_k = (b.narrow(-2, 0, past) - finite_reference(m).unsqueeze(-2)).exp();
    rows.push_back(
        padded({at::matmul(phi_q, phi_k.transpose(-1, -2)), chunk_weights(ac, bc, reference)}));
    m = maximum_over_keys(bc, m);
  }
  return at::cat(rows, -2);
}

}  // namespace hedgerow::ops
