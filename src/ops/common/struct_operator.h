// Operators with many arguments. The arguments are the fields of a struct, so that one list serves
// kernels, calls and samples:
//
//   struct Inputs {
//     at::Tensor q;
//     OptTensor attn_mask;
//     bool is_causal = false;
//     static auto fields(auto& in) { return std::tie(in.q, in.attn_mask, in.is_causal); }
//   };
//
// fields() follows the schema. A kernel is a function Result(const Inputs&, More...) and serves an
// operator (More..., fields...) -> Result: what an operator takes beside the struct comes first.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ops/common/dispatch.h"

namespace hedgerow::ops {
namespace struct_operator {

// A field as the dispatcher passes it.
template <typename T>
struct Argument {
  using type = T;
};
template <>
struct Argument<at::Tensor> {
  using type = const at::Tensor&;
};
template <>
struct Argument<std::optional<at::Tensor>> {
  using type = const std::optional<at::Tensor>&;
};
template <>
struct Argument<std::string> {
  using type = std::string_view;
};

template <typename Inputs>
using Fields = decltype(Inputs::fields(std::declval<Inputs&>()));

template <typename Result, typename Inputs, typename Fields, typename... More>
struct Unpacked;
template <typename Result, typename Inputs, typename... T, typename... More>
struct Unpacked<Result, Inputs, std::tuple<T&...>, More...> {
  using Signature = Result(More..., typename Argument<T>::type...);

  template <auto f>
  static Result kernel(More... more, typename Argument<T>::type... fields) {
    Inputs in;
    Inputs::fields(in) = std::tie(fields...);
    return f(in, more...);
  }
};

}  // namespace struct_operator

// hedgerow::<name>, called with a struct; keep it in a function-local static.
template <typename Function>
class StructOperator;
template <typename Result, typename Inputs, typename... More>
class StructOperator<Result(const Inputs&, More...)>
    : public struct_operator::Unpacked<Result, Inputs, struct_operator::Fields<Inputs>, More...> {
 public:
  explicit StructOperator(const char* name)
      : op_(find_op<typename StructOperator::Signature>(name)) {}

  Result operator()(const Inputs& in, More... more) const {
    return std::apply([&](const auto&... fields) { return op_.call(more..., fields...); },
                      Inputs::fields(in));
  }

 private:
  c10::TypedOperatorHandle<typename StructOperator::Signature> op_;
};

// f(const Inputs&, More...) as a kernel, for TORCH_LIBRARY_IMPL.
template <auto f>
inline constexpr auto kStructKernel =
    &StructOperator<std::remove_pointer_t<decltype(f)>>::template kernel<f>;

}  // namespace hedgerow::ops
