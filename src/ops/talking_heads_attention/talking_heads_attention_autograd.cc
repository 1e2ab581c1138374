#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/common/composite_gradient.h"
#include "ops/common/dispatch.h"
#include "ops/common/path.h"
#include "ops/common/struct_operator.h"
#include "ops/talking_heads_attention/talking_heads_attention.h"

namespace hedgerow::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kOp = "talking_heads_attention";

// q, k, v and the optional tensors that are there.
variable_list tensors_of(const TalkingHeadsInputs& in) {
  variable_list tensors = {in.q, in.k, in.v};
  for (const OptTensor* t : optional_tensors(in))
    if (*t) tensors.push_back(**t);
  return tensors;
}

struct TalkingHeadsAttention : torch::autograd::Function<TalkingHeadsAttention> {
  // tensors: tensors_of(in), for autograd to see.
  static at::Tensor forward(AutogradContext* ctx, const TalkingHeadsInputs& in,
                            at::TensorList tensors) {
    at::AutoDispatchBelowADInplaceOrView guard;
    variable_list saved = {in.q, in.k, in.v};
    for (const OptTensor* t : optional_tensors(in)) saved.push_back(t->value_or(at::Tensor()));
    ctx->save_for_backward(saved);
    ctx->saved_data["is_causal"] = in.is_causal;
    ctx->saved_data["scale"] = in.scale;
    ctx->saved_data["dropout_p"] = in.dropout_p;
    ctx->saved_data["dropout_seed"] = in.dropout_seed;
    return talking_heads_attention(in);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    TalkingHeadsInputs in;
    std::tie(in.q, in.k, in.v) = std::tie(saved[0], saved[1], saved[2]);
    in.is_causal = ctx->saved_data["is_causal"].toBool();
    in.scale = ctx->saved_data["scale"].toOptional<double>();
    in.dropout_p = ctx->saved_data["dropout_p"].toDouble();
    in.dropout_seed = ctx->saved_data["dropout_seed"].toOptional<int64_t>();
    const auto tensors = optional_tensors(in);
    WantedGrads wanted = {};
    size_t edge = 3;  // autograd counts the tensors that are there
    for (size_t i = 0; i < kNumOptional; i++) {
      *tensors[i] = optional(saved[3 + i]);
      if (*tensors[i])
        wanted[i] = ctx->needs_input_grad(edge++) && (*tensors[i])->is_floating_point();
    }
    const TalkingHeadsGrads given = talking_heads_attention_backward(in, grads[0], wanted);
    const GradArray all = std::apply([](const auto&... grad) { return GradArray{grad...}; }, given);
    variable_list result = {at::Tensor(), all[0], all[1], all[2]};  // none for the struct
    for (size_t i = 0; i < kNumOptional; i++)
      if (*tensors[i]) result.push_back(wanted[i] ? all[3 + i] : at::Tensor());
    return result;
  }
};

at::Tensor attention_autograd(const TalkingHeadsInputs& in) {
  const variable_list tensors = tensors_of(in);
  if (!records_gradient(tensors)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return talking_heads_attention(in);
  }
  check_talking_heads_attention(kOp, in);
  if (!use_fast(kOp, on_kernel_device(in.q), "a device without a kernel"))
    return talking_heads_attention_composite(in);
  return TalkingHeadsAttention::apply(in, at::TensorList(tensors));
}

TalkingHeadsGrads backward_autograd(const TalkingHeadsInputs& in, const at::Tensor& grad,
                                    WantedGrads wanted) {
  variable_list tensors = tensors_of(in);
  tensors.push_back(grad);
  if (!records_gradient(tensors)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return talking_heads_attention_backward(in, grad, wanted);
  }
  check_talking_heads_backward(in, grad, wanted);
  return talking_heads_attention_backward_composite(in, grad, wanted);
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Autograd, m) {
  using namespace hedgerow::ops;
  m.impl("talking_heads_attention", kStructKernel<&attention_autograd>);
  m.impl("talking_heads_attention_backward", kStructKernel<&backward_autograd>);
}
