#include "ops/common/composite_gradient.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

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

bool records_gradient(
    std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors,
    std::initializer_list<std::reference_wrapper<const std::optional<at::Tensor>>> optional) {
  if (!at::GradMode::is_enabled()) return false;
  for (const at::Tensor& t : tensors)
    if (t.defined() && t.requires_grad()) return true;
  for (const std::optional<at::Tensor>& t : optional)
    if (t && t->defined() && t->requires_grad()) return true;
  return false;
}

bool records_gradient(const std::vector<at::Tensor>& tensors) {
  if (!at::GradMode::is_enabled()) return false;
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& t) { return t.defined() && t.requires_grad(); });
}

at::Tensor or_zeros(const at::Tensor& t, const at::Tensor& like) {
  return t.defined() ? t : at::zeros_like(like);
}

}  // namespace hedgerow::ops
