#include "ops/common/composite_gradient.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>

namespace hedgerow::ops {
namespace {

// Recording works inside, also below autograd's own kernels and in inference mode.
class RecordGuard {
 public:
  RecordGuard() : inference_(false), keys_(included(), excluded()), grad_(true) {}

 private:
  static c10::DispatchKeySet included() {
    return c10::impl::tls_local_dispatch_key_set().included_;
  }
  static c10::DispatchKeySet excluded() {
    return c10::impl::tls_local_dispatch_key_set().excluded_ - c10::autograd_dispatch_keyset -
           c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView);
  }
  c10::InferenceMode inference_;
  c10::impl::ForceDispatchKeyGuard keys_;
  at::AutoGradMode grad_;
};

}  // namespace

std::vector<at::Tensor> composite_gradient(const CompositeFunction& f,
                                           const std::vector<at::Tensor>& inputs,
                                           const std::vector<bool>& wanted,
                                           const std::vector<at::Tensor>& grads) {
  const bool create_graph = at::GradMode::is_enabled();
  RecordGuard guard;
  // An alias each: the same tensor may be given twice, and what needs no gradient outside may here.
  std::vector<at::Tensor> aliases(inputs.size()), sources;
  std::vector<size_t> places;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (!inputs[i].defined()) continue;
    const at::Tensor t = inputs[i].is_inference() ? inputs[i].clone() : inputs[i];
    const bool recorded = create_graph && t.requires_grad();
    aliases[i] = recorded ? t.view_as(t) : t.detach();
    if (!wanted[i]) continue;
    if (!recorded) aliases[i].requires_grad_(true);
    sources.push_back(aliases[i]);
    places.push_back(i);
  }
  const std::vector<at::Tensor> outputs = f(aliases);
  std::vector<at::Tensor> used_outputs, used_grads;
  for (size_t i = 0; i < outputs.size(); i++) {
    if (!grads[i].defined() || !outputs[i].requires_grad()) continue;
    used_outputs.push_back(outputs[i]);
    used_grads.push_back(grads[i].is_inference() ? grads[i].clone() : grads[i]);
  }
  std::vector<at::Tensor> result(inputs.size());
  if (sources.empty() || used_outputs.empty()) return result;
  const auto got =
      torch::autograd::grad(used_outputs, sources, used_grads, create_graph, create_graph,
                            /*allow_unused=*/true);
  for (size_t i = 0; i < places.size(); i++) result[places[i]] = got[i];
  return result;
}

namespace {

// Below autograd a tangent is lost, and derivatives would silently be zero. Under torch.func.jvp
// tensors have it here alone.
bool asks_for_gradient(const at::Tensor& t) {
  if (!t.defined()) return false;
  TORCH_CHECK_NOT_IMPLEMENTED(!t._fw_grad(0).defined(),
                              "hedgerow: this operator has no forward-mode derivative: inputs must "
                              "have no tangent; use reverse mode");
  return t.requires_grad();
}

}  // namespace

bool records_gradient(
    std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors,
    std::initializer_list<std::reference_wrapper<const std::optional<at::Tensor>>> optional) {
  bool asked = false;
  for (const at::Tensor& t : tensors) asked |= asks_for_gradient(t);
  for (const std::optional<at::Tensor>& t : optional) asked |= t && asks_for_gradient(*t);
  return asked && at::GradMode::is_enabled();
}

bool records_gradient(const std::vector<at::Tensor>& tensors) {
  bool asked = false;
  for (const at::Tensor& t : tensors) asked |= asks_for_gradient(t);
  return asked && at::GradMode::is_enabled();
}

at::Tensor or_zeros(const at::Tensor& t, const at::Tensor& like) {
  return t.defined() ? t : at::zeros_like(like);
}

}  // namespace hedgerow::ops
