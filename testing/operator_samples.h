// One table of sample inputs, with a row for every registered hedgerow:: operator. The conformance
// test fails for an operator without a row.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/stack.h>

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hedgerow/ops.h"
#include "ops/attention_weights/attention_weights.h"
#include "ops/hedgehog_attention/hedgehog_attention.h"
#include "ops/linear_attention/linear_attention.h"
#include "ops/softmax_attention/softmax_attention.h"
#include "testing/entmax_samples.h"
#include "testing/operator_inputs.h"
#include "testing/partial_samples.h"
#include "testing/talking_heads_samples.h"

namespace hedgerow::testing_support {

namespace samples {

inline std::vector<Sample> softmax_public() {
  std::vector<Sample> out;
  for (const auto& [label, tail] : softmax_tails())
    out.push_back({label, [tail = tail](const Sizes& n, at::ScalarType d) -> Stack {
                     const Qkv x = qkv(n, d);
                     const SoftmaxTail t = tail(n, d);
                     return {x.q, x.k, x.v, t.mask, t.causal, t.scale, t.dropout, t.seed};
                   }});
  return out;
}

inline std::vector<Sample> softmax_backward() {
  std::vector<Sample> out;
  for (const auto& [label, tail] : softmax_tails())
    out.push_back({label, [tail = tail](const Sizes& n, at::ScalarType d) -> Stack {
                     const Qkv x = qkv(n, d);
                     const SoftmaxTail t = tail(n, d);
                     const auto [o, lse] = ops::softmax_attention_forward(
                         x.q, x.k, x.v, t.mask.toOptional<at::Tensor>(), t.causal,
                         t.scale.toOptional<double>(), t.dropout, t.seed.toOptional<int64_t>());
                     const bool mask_grad =
                         t.mask.isTensor() && t.mask.toTensor().is_floating_point();
                     return {random({n.B, n.H, n.T, n.Dv}, d, 14),
                             x.q,
                             x.k,
                             x.v,
                             o,
                             lse,
                             t.mask,
                             t.causal,
                             t.scale,
                             t.dropout,
                             t.seed,
                             mask_grad};
                   }});
  return out;
}

inline std::vector<Sample> linear_public() {
  std::vector<Sample> out;
  for (const bool causal : {false, true})
    for (const bool masked : {false, true})
      out.push_back(
          {std::string(causal ? "causal" : "full") + (masked ? " masked" : ""),
           [=](const Sizes& n, at::ScalarType d) -> Stack {
             const Qkv x = features(n, d);
             return {x.q, x.k, x.v, masked ? IValue(bool_mask({n.B, n.S}, 15)) : none(), causal};
           }});
  return out;
}

inline std::vector<Sample> linear_state() {
  std::vector<Sample> out;
  for (const bool given : {false, true})
    out.push_back({given ? "continued" : "started", [=](const Sizes& n, at::ScalarType d) -> Stack {
                     const Qkv x = features(n, d);
                     const State t = state(n, d, n.D);
                     return {x.q,
                             x.k,
                             x.v,
                             given ? IValue(bool_mask({n.B, n.S}, 15)) : none(),
                             given ? IValue(t.s) : none(),
                             given ? IValue(t.z) : none()};
                   }});
  return out;
}

inline std::vector<Sample> linear_forward() {
  std::vector<Sample> out;
  for (const bool given : {false, true})
    out.push_back({given ? "continued" : "plain", [=](const Sizes& n, at::ScalarType d) -> Stack {
                     const Qkv x = features(n, d);
                     const State t = state(n, d, n.D);
                     return {x.q,
                             x.k,
                             x.v,
                             none(),
                             given,
                             given ? IValue(t.s) : none(),
                             given ? IValue(t.z) : none(),
                             given};
                   }});
  return out;
}

inline std::vector<Sample> linear_backward() {
  std::vector<Sample> out;
  for (const bool given : {false, true})
    out.push_back({given ? "continued" : "plain", [=](const Sizes& n, at::ScalarType d) -> Stack {
                     const Qkv x = features(n, d);
                     const State t = state(n, d, n.D);
                     const ops::OptTensor s = given ? ops::OptTensor(t.s) : ops::OptTensor(),
                                          z = given ? ops::OptTensor(t.z) : ops::OptTensor();
                     const auto [o, inv_den, s_out, z_out] =
                         ops::linear_attention_forward(x.q, x.k, x.v, {}, given, s, z, given);
                     const IValue gs =
                         given ? IValue(random({n.B, n.Hkv, n.D, n.Dv}, t.s.scalar_type(), 16))
                               : none();
                     const IValue gz =
                         given ? IValue(random({n.B, n.Hkv, n.D}, t.s.scalar_type(), 17)) : none();
                     return {random({n.B, n.H, n.T, n.Dv}, d, 14),
                             gs,
                             gz,
                             x.q,
                             x.k,
                             x.v,
                             o,
                             inv_den,
                             none(),
                             given,
                             s,
                             z};
                   }});
  return out;
}

inline const std::vector<std::string>& variants() {
  static const std::vector<std::string> names = {"exp",  "softmax", "softmax_joint", "elu",
                                                 "relu", "taylor",  "exp_half",      "performer"};
  return names;
}
inline int64_t width(const std::string& variant, int64_t e) {
  return kernels::feature_width(*kernels::find_feature_map(variant), e);
}

inline std::vector<Sample> features_public(bool backward) {
  std::vector<Sample> out;
  for (const std::string& variant : variants())
    for (const bool bias : {false, true})
      out.push_back(
          {variant + (bias ? " bias" : ""), [=](const Sizes& n, at::ScalarType d) -> Stack {
             const Maps w = maps(n, d);
             Stack stack;
             if (backward) stack.push_back(random({n.B, n.H, n.T, width(variant, n.E)}, d, 18));
             stack.insert(stack.end(), {qkv(n, d).q, w.wq, bias ? IValue(w.bq) : none(), variant});
             return stack;
           }});
  return out;
}

// q, k, v, wq, wk, bq, bk, variant
inline Stack hedgehog_head(const Sizes& n, at::ScalarType d, const std::string& variant,
                           bool bias) {
  const Qkv x = qkv(n, d);
  const Maps w = maps(n, d);
  return {x.q,    x.k, x.v, w.wq, w.wk, bias ? IValue(w.bq) : none(), bias ? IValue(w.bk) : none(),
          variant};
}

inline std::vector<Sample> hedgehog_public() {
  std::vector<Sample> out;
  for (const std::string& variant : variants())
    for (const bool causal : {false, true})
      out.push_back({variant + (causal ? " causal" : " full"),
                     [=](const Sizes& n, at::ScalarType d) -> Stack {
                       Stack stack = hedgehog_head(n, d, variant, causal);
                       stack.push_back(causal ? none() : IValue(bool_mask({n.B, n.S}, 15)));
                       stack.push_back(causal);
                       return stack;
                     }});
  return out;
}

inline std::vector<Sample> hedgehog_state() {
  std::vector<Sample> out;
  for (const std::string variant : {"exp", "softmax"})
    for (const bool given : {false, true})
      out.push_back({variant + (given ? " continued" : " started"),
                     [=](const Sizes& n, at::ScalarType d) -> Stack {
                       const State t = state(n, d, width(variant, n.E));
                       Stack stack = hedgehog_head(n, d, variant, given);
                       stack.push_back(given ? IValue(bool_mask({n.B, n.S}, 15)) : none());
                       for (const at::Tensor& x : {t.s, t.z, t.m})
                         stack.push_back(given ? IValue(x) : none());
                       return stack;
                     }});
  return out;
}

inline std::vector<Sample> hedgehog_step() {
  std::vector<Sample> out;
  for (const std::string& variant : variants())
    out.push_back(
        {variant, [=](const Sizes& n, at::ScalarType d) -> Stack {
           const State t = state(n, d, width(variant, n.E));
           Stack stack = hedgehog_head(n, d, variant, true);
           stack.insert(stack.end(), {t.s, t.z, variant == "exp" ? t.m : at::zeros_like(t.m)});
           return stack;
         }});
  return out;
}

// key_mask, is_causal, s, z, m follow the head.
inline Stack hedgehog_tail(const Sizes& n, at::ScalarType d, const std::string& variant,
                           bool given) {
  const State t = state(n, d, width(variant, n.E));
  Stack stack = {none(), given};
  for (const at::Tensor& x : {t.s, t.z, t.m}) stack.push_back(given ? IValue(x) : none());
  return stack;
}

inline std::vector<Sample> hedgehog_forward() {
  std::vector<Sample> out;
  for (const std::string variant : {"exp", "elu"})
    for (const bool given : {false, true})
      out.push_back({variant + (given ? " continued" : " plain"),
                     [=](const Sizes& n, at::ScalarType d) -> Stack {
                       Stack stack = hedgehog_head(n, d, variant, given);
                       for (const IValue& x : hedgehog_tail(n, d, variant, given))
                         stack.push_back(x);
                       stack.push_back(given);
                       return stack;
                     }});
  return out;
}

inline std::vector<Sample> hedgehog_backward() {
  std::vector<Sample> out;
  for (const std::string variant : {"exp", "elu"})
    for (const bool given : {false, true})
      out.push_back({variant + (given ? " continued" : " plain"),
                     [=](const Sizes& n, at::ScalarType d) -> Stack {
                       const Stack head = hedgehog_head(n, d, variant, given),
                                   tail = hedgehog_tail(n, d, variant, given);
                       const auto opt = [](const IValue& x) { return x.toOptional<at::Tensor>(); };
                       const auto r = ops::hedgehog_attention_forward(
                           head[0].toTensor(), head[1].toTensor(), head[2].toTensor(),
                           head[3].toTensor(), head[4].toTensor(), opt(head[5]), opt(head[6]),
                           variant, {}, given, opt(tail[2]), opt(tail[3]), opt(tail[4]), true);
                       const int64_t f = width(variant, n.E);
                       Stack stack = {
                           random({n.B, n.H, n.T, n.Dv}, d, 14),
                           given ? IValue(random({n.B, n.Hkv, f, n.Dv}, state_dtype(d), 16))
                                 : none(),
                           given ? IValue(random({n.B, n.Hkv, f}, state_dtype(d), 17)) : none()};
                       stack.insert(stack.end(), head.begin(), head.end());
                       stack.insert(stack.end(), {std::get<0>(r), std::get<1>(r), std::get<2>(r)});
                       stack.insert(stack.end(), {std::get<3>(r), std::get<4>(r), std::get<5>(r)});
                       stack.insert(stack.end(), tail.begin(), tail.end());
                       return stack;
                     }});
  return out;
}

inline std::vector<Sample> weights() {
  using ops::WeightsInputs;
  const auto of = [](const std::string& label, auto inputs) {
    return Sample{label, [=](const Sizes& n, at::ScalarType d) -> Stack {
                    WeightsInputs in = inputs(n, d);
                    const Qkv x = qkv(n, d);
                    in.q = x.q;
                    in.k = x.k;
                    in.key_mask = bool_mask({n.B, n.S}, 15);
                    return stack_of(in);
                  }};
  };
  std::vector<Sample> out = {of("softmax",
                                [](const Sizes& n, at::ScalarType d) {
                                  return WeightsInputs{.kind = "softmax",
                                                       .attn_mask = float_mask({n.T, n.S}, d, 13),
                                                       .is_causal = true,
                                                       .scale = 0.3};
                                }),
                             of("entmax",
                                [](const Sizes& n, at::ScalarType d) {
                                  return WeightsInputs{.kind = "entmax",
                                                       .attn_mask = float_mask({n.T, n.S}, d, 13),
                                                       .is_causal = true,
                                                       .scale = 0.3,
                                                       .alpha = head_alphas(n, d)};
                                }),
                             of("talking heads",
                                [](const Sizes& n, at::ScalarType d) {
                                  return WeightsInputs{
                                      .kind = "talking_heads",
                                      .attn_mask = bool_mask({softmax_heads(n), n.T, n.S}, 54),
                                      .logits_proj = logits_projection(n, d),
                                      .weights_proj = weights_projection(n, d)};
                                }),
                             of("dynamic talking heads", [](const Sizes& n, at::ScalarType d) {
                               return WeightsInputs{.kind = "talking_heads",
                                                    .is_causal = true,
                                                    .alpha = softmax_alphas(n),
                                                    .logits_proj = logits_projection(n, d),
                                                    .weights_proj = weights_projection(n, d),
                                                    .x_logits = term(n, d, n.T, true, 58),
                                                    .m_logits = term(n, d, n.S, true, 59),
                                                    .x_weights = term(n, d, n.T, false, 60),
                                                    .m_weights = term(n, d, n.S, false, 61)};
                             })};
  for (const auto& [label, inputs] : partial_inputs_with_own())
    out.push_back(of("partial " + label, [inputs = inputs](const Sizes& n, at::ScalarType d) {
      return partial_weights(inputs(n, d));
    }));
  for (const std::string variant : {"exp", "relu"})
    for (const bool causal : {false, true})
      out.push_back(of("hedgehog " + variant + (causal ? " causal" : ""),
                       [=](const Sizes& n, at::ScalarType d) {
                         const Maps w = maps(n, d);
                         return WeightsInputs{.kind = "hedgehog",
                                              .is_causal = causal,
                                              .wq = w.wq,
                                              .wk = w.wk,
                                              .bq = w.bq,
                                              .bk = w.bk,
                                              .variant = variant};
                       }));
  return out;
}

inline Sample rows(int count) {
  return {"rows", [count](const Sizes& n, at::ScalarType d) -> Stack {
            Stack stack;
            for (int i = 0; i < count; i++)
              stack.push_back(random({n.B, n.T, n.D}, at::kDouble, 20 + i).softmax(-1).to(d));
            return stack;
          }};
}

// (.., s, z, m): what s and z stand for, in float64.
inline Tensors true_state(const Tensors& t, size_t first) {
  Tensors out(t.begin(), t.begin() + static_cast<int64_t>(first));
  const at::Tensor scale = t[first + 2].to(at::kDouble).exp();
  if (t[first + 1].dim() != 3) return out;  // no state was asked for
  out.push_back(t[first].to(at::kDouble) * scale.unsqueeze(-1));
  out.push_back(t[first + 1].to(at::kDouble) * scale);
  return out;
}

}  // namespace samples

inline const std::vector<OperatorSamples>& operator_samples() {
  using namespace samples;
  static const std::vector<OperatorSamples> table = [] {
    std::vector<OperatorSamples> t;
    t.push_back({"softmax_attention", softmax_public()});
    t.push_back({"softmax_attention_forward", softmax_public()});
    t.push_back({"softmax_attention_backward", softmax_backward()});
    for (OperatorSamples& row : entmax_rows()) t.push_back(std::move(row));
    for (OperatorSamples& row : talking_heads_rows()) t.push_back(std::move(row));
    for (OperatorSamples& row : partial_rows()) t.push_back(std::move(row));
    t.push_back({"hedgehog_features", features_public(false)});
    t.push_back({"hedgehog_features_backward", features_public(true)});
    t.push_back({"linear_attention", linear_public()});
    t.push_back({"linear_attention_state", linear_state(), true});
    t.push_back({"linear_attention_forward", linear_forward()});
    t.push_back({"linear_attention_backward", linear_backward()});
    t.push_back({"hedgehog_attention", hedgehog_public()});
    t.push_back({"hedgehog_attention_state", hedgehog_state(), true, false,
                 [](const Tensors& r) { return true_state(r, 1); }});
    t.push_back({"hedgehog_step_", hedgehog_step(), false, true,
                 [](const Tensors& r) { return true_state(r, 1); }});
    t.push_back(
        {"hedgehog_attention_forward", hedgehog_forward(), false, false, [](const Tensors& r) {
           // the normaliser in logarithms, from the two numbers that stand for it
           const at::Tensor log_den =
               r[2].to(at::kDouble) * std::log(2.0) - r[1].to(at::kDouble).log();
           return true_state({r[0], log_den, r[3], r[4], r[5]}, 2);
         }});
    t.push_back({"hedgehog_attention_backward", hedgehog_backward()});
    t.push_back({"attention_weights", weights()});
    t.push_back({"entropy", {rows(1)}});
    t.push_back({"kl_divergence", {rows(2)}});
    t.push_back({"js_divergence", {rows(2)}});
    return t;
  }();
  return table;
}

}  // namespace hedgerow::testing_support
