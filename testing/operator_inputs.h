// What sample calls are and the tensors that they are made of; values depend on shape and seed
// alone.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/stack.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace hedgerow::testing_support {

// B batch, H heads, Hkv key/value heads, T queries, S keys, D and Dv widths, E map width.
struct Sizes {
  int64_t B = 2, H = 4, Hkv = 2, T = 5, S = 7, D = 8, Dv = 6, E = 3;
};

// Arguments of one call, all of them, in the schema's order.
using BuildSample = std::function<torch::jit::Stack(const Sizes& sizes, at::ScalarType dtype)>;
struct Sample {
  std::string label;
  BuildSample build;
};

// What must agree between implementations, from the outputs followed by the arguments that the
// operator writes: all of it unless given.
using Tensors = std::vector<at::Tensor>;
using Comparable = std::function<Tensors(const Tensors& outputs)>;

struct OperatorSamples {
  std::string op;  // without "hedgerow::"
  std::vector<Sample> samples;
  bool own_keys = false;   // a call whose keys are its queries' own: S = T
  bool one_token = false;  // T = S = 1
  Comparable comparable = [](const Tensors& t) { return t; };
  bool has_gradient = true;
};

namespace samples {

using c10::IValue;
using torch::jit::Stack;

inline at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype, uint64_t seed,
                         double scale = 1.0) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator, at::TensorOptions().dtype(at::kDouble)).mul(scale).to(dtype);
}
inline at::ScalarType state_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

inline at::Tensor bool_mask(at::IntArrayRef shape, uint64_t seed) {
  return random(shape, at::kDouble, seed) > -0.7;
}
// A tenth of the entries is -inf.
inline at::Tensor float_mask(at::IntArrayRef shape, at::ScalarType dtype, uint64_t seed) {
  const at::Tensor t = random(shape, at::kDouble, seed);
  return t.masked_fill(t < -1.3, -INFINITY).to(dtype);
}

struct Qkv {
  at::Tensor q, k, v;
};
inline Qkv qkv(const Sizes& n, at::ScalarType dtype) {
  return {random({n.B, n.H, n.T, n.D}, dtype, 1), random({n.B, n.Hkv, n.S, n.D}, dtype, 2),
          random({n.B, n.Hkv, n.S, n.Dv}, dtype, 3)};
}
inline Qkv features(const Sizes& n, at::ScalarType dtype) {  // positive
  Qkv t = qkv(n, dtype);
  return {t.q.abs(), t.k.abs(), t.v};
}
struct Maps {
  at::Tensor wq, wk, bq, bk;
};
inline Maps maps(const Sizes& n, at::ScalarType dtype) {
  return {random({n.H, n.D, n.E}, dtype, 4, 0.4), random({n.Hkv, n.D, n.E}, dtype, 5, 0.4),
          random({n.H, n.E}, dtype, 6, 0.3), random({n.Hkv, n.E}, dtype, 7, 0.3)};
}
struct State {
  at::Tensor s, z, m;
};
// Of features of that many earlier tokens, in the form that `variant` keeps.
inline State state(const Sizes& n, at::ScalarType dtype, int64_t width) {
  const at::ScalarType t = state_dtype(dtype);
  return {random({n.B, n.Hkv, width, n.Dv}, t, 8), random({n.B, n.Hkv, width}, t, 9).abs() + 0.5,
          random({n.B, n.Hkv, width}, t, 10)};
}

inline IValue none() { return IValue(); }

// `more` and the fields of a struct of arguments (ops/common/struct_operator.h).
template <typename Inputs>
Stack stack_of(const Inputs& in, Stack more = {}) {
  std::apply([&](const auto&... field) { (more.emplace_back(field), ...); }, Inputs::fields(in));
  return more;
}

struct SoftmaxTail {
  IValue mask = none();
  bool causal = false;
  IValue scale = none();
  double dropout = 0;
  IValue seed = none();
};

inline std::vector<std::pair<std::string, std::function<SoftmaxTail(const Sizes&, at::ScalarType)>>>
softmax_tails() {
  return {{"plain", [](auto&, auto) { return SoftmaxTail{}; }},
          {"causal",
           [](auto&, auto) {
             return SoftmaxTail{none(), true};
           }},
          {"bool",
           [](const Sizes& n, auto) {
             return SoftmaxTail{bool_mask({n.B, 1, 1, n.S}, 11)};
           }},
          {"rows",
           [](const Sizes& n, auto) {
             return SoftmaxTail{bool_mask({n.T, 1}, 12), true, 0.3};
           }},
          {"bias",
           [](const Sizes& n, auto d) {
             return SoftmaxTail{float_mask({n.H, n.T, n.S}, d, 13), true};
           }},
          {"dropout", [](auto&, auto) {
             return SoftmaxTail{none(), false, none(), 0.3, int64_t{5}};
           }}};
}

}  // namespace samples
}  // namespace hedgerow::testing_support
