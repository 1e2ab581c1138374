// Rows of the table of sample inputs for talking heads and bilinear attention.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "hedgerow/ops.h"
#include "ops/talking_heads_attention/talking_heads_attention.h"
#include "testing/entmax_samples.h"
#include "testing/operator_inputs.h"

namespace hedgerow::testing_support::samples {

// Softmax heads; value heads, which the heads of v divide.
inline int64_t softmax_heads(const Sizes& n) { return n.H + 1; }
inline int64_t value_heads(const Sizes& n) { return 2 * n.Hkv; }

inline at::Tensor logits_projection(const Sizes& n, at::ScalarType dtype) {
  return random({n.H, softmax_heads(n)}, dtype, 50, 0.5);
}
inline at::Tensor weights_projection(const Sizes& n, at::ScalarType dtype) {
  return random({softmax_heads(n), value_heads(n)}, dtype, 51, 0.5);
}
// What the terms of queries and keys, of logits and weights, look like.
inline at::Tensor term(const Sizes& n, at::ScalarType dtype, int64_t rows, bool logits,
                       uint64_t seed) {
  return logits ? random({n.B, rows, n.H, softmax_heads(n)}, dtype, seed, 0.2)
                : random({n.B, rows, softmax_heads(n), value_heads(n)}, dtype, seed, 0.2);
}
inline at::Tensor softmax_alphas(const Sizes& n) {
  return at::linspace(1.05, 1.9, softmax_heads(n), at::kDouble);
}

inline std::vector<
    std::pair<std::string, std::function<ops::TalkingHeadsOptions(const Sizes&, at::ScalarType)>>>
talking_heads_options() {
  const auto both = [](const Sizes& n, at::ScalarType d) {
    return ops::TalkingHeadsOptions{.logits_proj = logits_projection(n, d),
                                    .weights_proj = weights_projection(n, d)};
  };
  return {
      {"both", both},
      {"neither",
       [](const Sizes& n, auto) {
         return ops::TalkingHeadsOptions{.attn_mask = bool_mask({n.B, 1, 1, n.S}, 11),
                                         .is_causal = true};
       }},
      {"logits only",
       [](const Sizes& n, auto d) {
         return ops::TalkingHeadsOptions{.logits_proj = random({n.H, value_heads(n)}, d, 52),
                                         .is_causal = true};
       }},
      {"weights only",
       [](const Sizes& n, auto d) {
         return ops::TalkingHeadsOptions{.weights_proj = random({n.H, n.Hkv}, d, 53), .scale = 0.3};
       }},
      {"masked by head",
       [=](const Sizes& n, auto d) {
         ops::TalkingHeadsOptions o = both(n, d);
         o.attn_mask = bool_mask({softmax_heads(n), n.T, n.S}, 54);
         return o;
       }},
      {"bias, float32 projections",
       [=](const Sizes& n, auto d) {
         ops::TalkingHeadsOptions o = both(n, state_dtype(d));
         o.attn_mask = float_mask({n.B, softmax_heads(n), 1, n.S}, d, 55);
         o.is_causal = true;
         return o;
       }},
      {"entmax",
       [=](const Sizes& n, auto d) {
         ops::TalkingHeadsOptions o = both(n, d);
         o.attn_mask = float_mask({softmax_heads(n), n.T, n.S}, d, 56);
         o.alpha = softmax_alphas(n);
         return o;
       }},
      {"dynamic",
       [=](const Sizes& n, auto d) {
         ops::TalkingHeadsOptions o = both(n, d);
         o.attn_mask = bool_mask({n.B, 1, n.T, n.S}, 57);
         o.x_logits = term(n, d, n.T, true, 58);
         o.m_logits = term(n, d, n.S, true, 59);
         o.x_weights = term(n, d, n.T, false, 60);
         o.m_weights = term(n, d, n.S, false, 61);
         return o;
       }},
      {"terms of queries, entmax",
       [=](const Sizes& n, auto d) {
         ops::TalkingHeadsOptions o = both(n, d);
         o.is_causal = true;
         o.alpha = scalar_alpha(1.5, d);
         o.x_logits = term(n, d, n.T, true, 58);
         o.x_weights = term(n, d, n.T, false, 60);
         return o;
       }},
      {"a term of keys",
       [=](const Sizes& n, auto d) {
         ops::TalkingHeadsOptions o = both(n, d);
         o.m_weights = term(n, d, n.S, false, 61);
         return o;
       }},
      {"dropout",
       [=](const Sizes& n, auto d) {
         ops::TalkingHeadsOptions o = both(n, d);
         o.dropout_p = 0.3;
         o.dropout_seed = 5;
         return o;
       }},
  };
}

inline ops::TalkingHeadsInputs talking_heads_inputs(const Sizes& n, at::ScalarType dtype,
                                                    const ops::TalkingHeadsOptions& options) {
  const Qkv x = qkv(n, dtype);
  return {options, x.q, x.k, x.v};
}

inline std::vector<Sample> talking_heads_public() {
  std::vector<Sample> out;
  for (const auto& [label, options] : talking_heads_options())
    out.push_back({label, [options = options](const Sizes& n, at::ScalarType d) -> Stack {
                     return stack_of(talking_heads_inputs(n, d, options(n, d)));
                   }});
  return out;
}

inline std::vector<Sample> talking_heads_backward() {
  std::vector<Sample> out;
  for (const auto& [label, options] : talking_heads_options())
    out.push_back({label, [options = options](const Sizes& n, at::ScalarType d) -> Stack {
                     const ops::TalkingHeadsInputs in = talking_heads_inputs(n, d, options(n, d));
                     const at::Tensor grad =
                         random({n.B, ops::head_counts(in).value.expect_int(), n.T, n.Dv}, d, 14);
                     c10::List<bool> wanted;
                     for (const ops::OptTensor* t : ops::optional_tensors(in))
                       wanted.push_back(*t && (*t)->is_floating_point());
                     return stack_of(in, {grad, wanted});
                   }});
  return out;
}

inline std::vector<Sample> dynamic_talking_heads() {
  std::vector<Sample> out;
  for (const bool all : {true, false})
    out.push_back(
        {all ? "all terms" : "a term of queries", [all](const Sizes& n, at::ScalarType d) -> Stack {
           const Qkv x = qkv(n, d);
           const int64_t H = softmax_heads(n), Hv = value_heads(n);
           const auto given = [&](at::IntArrayRef sizes, uint64_t seed) {
             return all ? IValue(random(sizes, d, seed, 0.2)) : none();
           };
           return {x.q,
                   x.k,
                   x.v,
                   logits_projection(n, d),
                   weights_projection(n, d),
                   random({n.B, n.T, n.D}, d, 62),  // x
                   given({n.B, n.S, n.E}, 63),      // m
                   random({n.D, n.H, H}, d, 64, 0.2),
                   given({n.E, n.H, H}, 65),
                   given({n.D, H, Hv}, 66),
                   given({n.E, H, Hv}, 67),
                   bool_mask({n.B, 1, 1, n.S}, 11),
                   !all,
                   none(),
                   none(),
                   0.0,
                   none()};
         }});
  return out;
}

inline std::vector<Sample> bilinear() {
  std::vector<Sample> out;
  for (const bool sparse : {false, true})
    out.push_back({sparse ? "entmax causal" : "softmax masked",
                   [sparse](const Sizes& n, at::ScalarType d) -> Stack {
                     return {random({n.B, n.T, n.D}, d, 68),
                             random({n.B, n.S, n.Dv}, d, 69),
                             random({n.H, n.D, n.Dv}, d, 70, 0.3),
                             random({n.H, n.Dv, n.E}, d, 71),
                             sparse ? none() : IValue(bool_mask({n.B, 1, 1, n.S}, 11)),
                             sparse,
                             sparse ? IValue(head_alphas(n, d)) : none(),
                             0.0,
                             none()};
                   }});
  return out;
}

inline std::vector<Sample> bilinear_parameters() {
  return {{"layer", [](const Sizes& n, at::ScalarType d) -> Stack {
             const int64_t Hv = value_heads(n);
             return {random({n.H, n.S, n.D}, d, 72),
                     random({n.H, n.T, n.D}, d, 73),
                     random({Hv, n.T, n.Dv}, d, 74),
                     random({Hv, n.Dv, n.E}, d, 75),
                     logits_projection(n, d),
                     weights_projection(n, d),
                     none()};
           }}};
}

inline std::vector<OperatorSamples> talking_heads_rows() {
  std::vector<OperatorSamples> t;
  t.push_back({"talking_heads_attention", talking_heads_public()});
  t.push_back({"talking_heads_attention_backward", talking_heads_backward()});
  t.push_back({"dynamic_talking_heads_attention", dynamic_talking_heads()});
  t.push_back({"bilinear_attention", bilinear()});
  t.push_back({"bilinear_from_talking_heads", bilinear_parameters()});
  return t;
}

}  // namespace hedgerow::testing_support::samples
