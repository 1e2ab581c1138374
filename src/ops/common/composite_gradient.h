// Backward operators in terms of their composite forward: for second derivatives and for devices
// without a kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

namespace hedgerow::ops {

// d sum_i <grads[i], f(inputs)[i]> / d inputs, where f is made of differentiable ATen operators.
// While gradients are recorded the result is differentiable in inputs and grads. An input with
// wanted[i] false, an undefined input, and an input that f does not use get an undefined tensor; an
// undefined grads[i] counts as zero.
using CompositeFunction =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;
std::vector<at::Tensor> composite_gradient(const CompositeFunction& f,
                                           const std::vector<at::Tensor>& inputs,
                                           const std::vector<bool>& wanted,
                                           const std::vector<at::Tensor>& grads);

// True when gradients are recorded and one of the tensors asks for them.
bool records_gradient(
    std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors,
    std::initializer_list<std::reference_wrapper<const std::optional<at::Tensor>>> optional = {});
bool records_gradient(const std::vector<at::Tensor>& tensors);

// The tensor, or zeros like `like` where it is undefined.
at::Tensor or_zeros(const at::Tensor& t, const at::Tensor& like);

}  // namespace hedgerow::ops
