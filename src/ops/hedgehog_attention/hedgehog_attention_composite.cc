// The definition, in ATen operators, in time linear in T.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "ops/common/composite_gradient.h"
#include "ops/common/dispatch.h"
#include "ops/common/masks.h"
#include "ops/hedgehog_attention/exp_composite.h"
#include "ops/hedgehog_attention/hedgehog_attention.h"
#include "ops/hedgehog_features/hedgehog_features.h"
#include "ops/linear_attention/linear_attention.h"

namespace hedgerow::ops {
namespace {

using kernels::FeatureMap;
constexpr double kInf = std::numeric_limits<double>::infinity();

at::Tensor signed_pair(const at::Tensor& y) { return at::cat({y, y.neg()}, -1); }

}  // namespace

ExpInputs exp_inputs(const HedgehogInputs& in, const at::Tensor& v) {
  const at::ScalarType dtype = accumulate_dtype(in.q.scalar_type());
  ExpInputs x;
  x.keys = clean_keys(in.k.to(dtype), v.to(dtype), in.key_mask);
  x.a =
      group_heads(signed_pair(project_composite(finite_or_zero(in.q), in.wq, in.bq)), in.k.size(1));
  x.b = signed_pair(project_composite(x.keys.k.squeeze(2), in.wk.to(dtype), in.bk)).unsqueeze(2);
  if (x.keys.keep.defined()) x.b = x.b.masked_fill(x.keys.keep.logical_not(), -kInf);
  return x;
}

at::Tensor poisoned_queries(const HedgehogInputs& in, const GroupedKeys& keys) {
  const int64_t T = in.q.size(2);
  const at::Tensor finite = at::isfinite(in.q.detach()).all(-1, true);  // [B,H,T,1]
  const at::Tensor bad_q =
      group_heads(finite, in.k.size(1)).squeeze(-1).logical_not();  // [B,Hkv,G,T]
  const at::Tensor bad_rows = in.s ? bad_q : bad_q.logical_and(keys.seeing_rows(T, in.is_causal));
  return bad_rows.logical_or(keys.poisoned_rows(T, in.is_causal));
}

LinearInputs feature_inputs(const HedgehogInputs& in, const at::Tensor& v) {
  const at::ScalarType dtype = accumulate_dtype(in.q.scalar_type());
  const GroupedKeys keys = clean_keys(in.k.to(dtype), v.to(dtype), in.key_mask);
  const FeatureMap map = feature_map(in);
  const at::Tensor phi_q = features_composite(finite_or_zero(in.q), in.wq, in.bq, map);
  const OptTensor bk = in.bk ? OptTensor(in.bk->to(dtype)) : OptTensor();
  const at::Tensor phi_k = features_composite(keys.k.squeeze(2), in.wk.to(dtype), bk, map);
  return {phi_q, phi_k, keys.v.squeeze(2), in.key_mask, in.is_causal, in.s, in.z};
}

namespace {

HedgehogForwardResult exp_composite(const HedgehogInputs& in, bool want_state) {
  const ExpInputs x = exp_inputs(in, in.v);
  const at::TensorOptions options = x.b.options().requires_grad(false);
  ExpState state = ExpState::empty(in.v.size(0), in.v.size(1), x.b.size(4), in.v.size(3), options);
  if (in.s) {
    const at::Tensor unseen =
        in.s->detach().eq(0).all(-1).logical_and(in.z->detach().eq(0));  // [B,Hkv,F]
    const at::Tensor m = in.m ? in.m->detach() : at::zeros_like(*in.z);
    state = {in.s->unsqueeze(2), in.z->unsqueeze(2), m.masked_fill(unseen, -kInf).unsqueeze(2)};
  }
  ExpRows rows;
  if (in.is_causal) {
    rows = exp_rows_causal(x.a, x.b, x.keys.v, CausalSpan(in.q.size(2), in.k.size(2)), state);
  } else {
    state.absorb(x.b, x.keys.v);
    rows = exp_rows(x.a, state);
  }
  const NormalisedRows done = normalise_rows(rows.num, rows.den, poisoned_queries(in, x.keys));
  const at::Tensor exponent = (rows.reference * (1 / std::log(2.0))).squeeze(-1).flatten(1, 2);
  const at::Tensor none = at::empty({0}, options);
  if (!want_state)
    return {done.out.to(in.q.scalar_type()), done.inv_den, exponent, none, none, none};
  const at::Tensor lost = x.keys.bad.any(-1).unsqueeze(-1);  // [B,Hkv,1]
  return {done.out.to(in.q.scalar_type()),
          done.inv_den,
          exponent,
          state.s.squeeze(2).masked_fill(lost.unsqueeze(-1), std::nan("")),
          state.z.squeeze(2).masked_fill(lost, std::nan("")),
          state.m.squeeze(2).masked_fill(state.m.squeeze(2) == -kInf, 0)};
}

}  // namespace

HedgehogForwardResult hedgehog_attention_composite(const HedgehogInputs& in, bool want_state) {
  if (feature_map(in) == FeatureMap::kExp) return exp_composite(in, want_state);
  const auto [out, inv_den, s, z] =
      linear_attention_composite(feature_inputs(in, in.v), want_state);
  const GroupedKeys keys = clean_keys(in.k, in.v, in.key_mask);
  const at::Tensor poisoned = poisoned_queries(in, keys).flatten(1, 2);
  return {out.masked_fill(poisoned.unsqueeze(-1), std::nan("")).to(in.q.scalar_type()),
          inv_den,
          at::zeros_like(inv_den),
          s,
          z,
          at::zeros_like(z, z.options().requires_grad(false))};
}

HedgehogGrads hedgehog_attention_backward_composite(const at::Tensor& grad, const OptTensor& grad_s,
                                                    const OptTensor& grad_z,
                                                    const HedgehogInputs& in,
                                                    const OptTensor& m_out) {
  const bool state_grads = grad_s.has_value() || grad_z.has_value();
  const auto forward = [&](const std::vector<at::Tensor>& t) -> std::vector<at::Tensor> {
    HedgehogInputs moved = in;
    moved.q = t[0];
    moved.k = t[1];
    moved.v = t[2];
    moved.wq = t[3];
    moved.wk = t[4];
    moved.bq = optional(t[5]);
    moved.bk = optional(t[6]);
    moved.s = optional(t[7]);
    moved.z = optional(t[8]);
    auto [out, inv_den, exponent, s, z, m] = hedgehog_attention_composite(moved, state_grads);
    if (state_grads && m_out &&
        feature_map(in) == FeatureMap::kExp) {  // relative to the forward's own reference
      const at::Tensor shift = (m - *m_out).exp();
      s = s * shift.unsqueeze(-1);
      z = z * shift;
    }
    return {out, s, z};
  };
  const auto or_none = [](const OptTensor& t) { return t.value_or(at::Tensor()); };
  const std::vector<at::Tensor> inputs = {
      in.q, in.k, in.v, in.wq, in.wk, or_none(in.bq), or_none(in.bk), or_none(in.s), or_none(in.z)};
  std::vector<bool> wanted;
  for (const at::Tensor& t : inputs) wanted.push_back(t.defined());
  const auto g =
      composite_gradient(forward, inputs, wanted, {grad, or_none(grad_s), or_none(grad_z)});
  const at::TensorOptions options = in.q.options().requires_grad(false);
  const auto result = [&](size_t i) {
    return inputs[i].defined() ? or_zeros(g[i], inputs[i]) : at::empty({0}, options);
  };
  return {result(0), result(1), result(2), result(3), result(4),
          result(5), result(6), result(7), result(8)};
}

namespace {

at::Tensor hedgehog_attention_any(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const at::Tensor& wq, const at::Tensor& wk, const OptTensor& bq,
                                  const OptTensor& bk, std::string_view variant,
                                  const OptTensor& key_mask, bool is_causal) {
  const HedgehogInputs in{q,        k,         v,  wq, wk, bq, bk, std::string(variant),
                          key_mask, is_causal, {}, {}, {}};
  check_hedgehog_attention("hedgehog_attention", in);
  return std::get<0>(hedgehog_attention_composite(in, false));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> hedgehog_attention_state_any(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& wq,
    const at::Tensor& wk, const OptTensor& bq, const OptTensor& bk, std::string_view variant,
    const OptTensor& key_mask, const OptTensor& s, const OptTensor& z, const OptTensor& m) {
  const HedgehogInputs in{q, k, v, wq, wk, bq, bk, std::string(variant), key_mask, true, s, z, m};
  check_hedgehog_state("hedgehog_attention_state", in);
  const auto r = hedgehog_attention_composite(in, true);
  return {std::get<0>(r), std::get<3>(r), std::get<4>(r), std::get<5>(r)};
}

at::Tensor hedgehog_step_any(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& wq, const at::Tensor& wk, const OptTensor& bq,
                             const OptTensor& bk, std::string_view variant, at::Tensor& s,
                             at::Tensor& z, at::Tensor& m) {
  const HedgehogInputs in{q, k, v, wq, wk, bq, bk, std::string(variant), {}, true, s, z, m};
  check_hedgehog_step("hedgehog_step_", in);
  const auto r = hedgehog_attention_composite(in, true);
  s.copy_(std::get<3>(r));
  z.copy_(std::get<4>(r));
  m.copy_(std::get<5>(r));
  return std::get<0>(r);
}

HedgehogForwardResult hedgehog_attention_forward_any(const at::Tensor& q, const at::Tensor& k,
                                                     const at::Tensor& v, const at::Tensor& wq,
                                                     const at::Tensor& wk, const OptTensor& bq,
                                                     const OptTensor& bk, std::string_view variant,
                                                     const OptTensor& key_mask, bool is_causal,
                                                     const OptTensor& s, const OptTensor& z,
                                                     const OptTensor& m, bool want_state) {
  const HedgehogInputs in{q,        k,         v, wq, wk, bq, bk, std::string(variant),
                          key_mask, is_causal, s, z,  m};
  check_hedgehog_attention("hedgehog_attention_forward", in);
  return hedgehog_attention_composite(in, want_state);
}

HedgehogGrads hedgehog_attention_backward_any(
    const at::Tensor& grad, const OptTensor& grad_s, const OptTensor& grad_z, const at::Tensor& q,
    const at::Tensor& k, const at::Tensor& v, const at::Tensor& wq, const at::Tensor& wk,
    const OptTensor& bq, const OptTensor& bk, std::string_view variant, const at::Tensor& out,
    const at::Tensor& inv_den, const at::Tensor& row_exponent, const OptTensor& s_out,
    const OptTensor& z_out, const OptTensor& m_out, const OptTensor& key_mask, bool is_causal,
    const OptTensor& s, const OptTensor& z, const OptTensor& m) {
  const HedgehogInputs in{q,        k,         v, wq, wk, bq, bk, std::string(variant),
                          key_mask, is_causal, s, z,  m};
  check_hedgehog_attention("hedgehog_attention_backward", in);
  return hedgehog_attention_backward_composite(grad, grad_s, grad_z, in, m_out);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, CompositeExplicitAutograd, m) {
  m.impl("hedgehog_attention", hedgerow::ops::hedgehog_attention_any);
  m.impl("hedgehog_attention_state", hedgerow::ops::hedgehog_attention_state_any);
  m.impl("hedgehog_step_", hedgerow::ops::hedgehog_step_any);
  m.impl("hedgehog_attention_forward", hedgerow::ops::hedgehog_attention_forward_any);
  m.impl("hedgehog_attention_backward", hedgerow::ops::hedgehog_attention_backward_any);
}
