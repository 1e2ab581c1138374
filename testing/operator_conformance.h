// What every registered hedgerow:: operator must have and do, as functions that return complaints.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "testing/operator_samples.h"

namespace hedgerow::testing_support {

using Complaints = std::vector<std::string>;

class PathGuard {
 public:
  explicit PathGuard(Path wanted) : before_(path()) { set_path(wanted); }
  ~PathGuard() { set_path(before_); }
  PathGuard(const PathGuard&) = delete;
  PathGuard& operator=(const PathGuard&) = delete;

 private:
  Path before_;
};

inline std::vector<c10::OperatorName> registered_operators() {
  std::vector<c10::OperatorName> names;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames())
    if (name.name.rfind("hedgerow::", 0) == 0) names.push_back(name);
  std::sort(names.begin(), names.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return names;
}

inline bool is_helper(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

// Parts that an operator of this kind must have registered.
inline Complaints check_registration(const c10::OperatorHandle& op) {
  Complaints bad;
  if (!op.hasSchema()) return {"has no schema"};
  if (!op.hasTag(at::Tag::pt2_compliant_tag)) bad.push_back("lacks the tag pt2_compliant_tag");
  if (is_helper(op)) return bad;  // made of ATen operators, which have all parts
  using c10::DispatchKey;
  for (const DispatchKey key : {DispatchKey::CPU, DispatchKey::Meta, DispatchKey::Autograd,
                                DispatchKey::CompositeExplicitAutograd})
    if (!op.hasKernelForDispatchKey(key))
      bad.push_back(std::string("has no kernel for ") + c10::toString(key));
  return bad;
}

// Replaces every tensor of the stack.
template <typename F>
torch::jit::Stack map_tensors(const torch::jit::Stack& stack, F f) {
  torch::jit::Stack out;
  for (const c10::IValue& x : stack) out.push_back(x.isTensor() ? c10::IValue(f(x.toTensor())) : x);
  return out;
}

// Outputs, followed by the arguments that the operator writes.
inline Tensors call(const c10::OperatorHandle& op, torch::jit::Stack stack) {
  Tensors written;
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); i++)
    if (arguments[i].alias_info() && arguments[i].alias_info()->isWrite())
      written.push_back(stack[i].toTensor());
  op.callBoxed(stack);
  Tensors out;
  for (const c10::IValue& x : stack) out.push_back(x.toTensor());
  out.insert(out.end(), written.begin(), written.end());
  return out;
}

inline torch::jit::Stack copy_of(const torch::jit::Stack& stack) {
  return map_tensors(stack, [](const at::Tensor& t) { return t.clone(); });
}

// The same values where neither the last nor any other dimension is contiguous.
inline at::Tensor strided(const at::Tensor& t) {
  if (t.dim() == 0) return t;
  std::vector<int64_t> sizes = t.sizes().vec();
  sizes.back() = 2 * sizes.back() + 1;
  std::reverse(sizes.begin(), sizes.end());
  at::Tensor storage = at::zeros(sizes, t.options());
  std::vector<int64_t> order(t.dim());
  for (int64_t i = 0; i < t.dim(); i++) order[i] = t.dim() - 1 - i;
  const at::Tensor view = storage.permute(order).slice(-1, 0, 2 * t.size(-1), 2);
  view.copy_(t);
  return view;
}

inline double unit_roundoff(at::ScalarType dtype) {
  return dtype == at::kDouble ? 0x1p-53 : dtype == at::kFloat ? 0x1p-24 : 0x1p-9;
}

// Complaint, or "" when the tensors agree within tolerance * max(1, max |want|).
inline std::string compare(const at::Tensor& got, const at::Tensor& want, double tolerance) {
  std::ostringstream text;
  if (got.sizes() != want.sizes() || got.scalar_type() != want.scalar_type()) {
    text << "is " << got.scalar_type() << got.sizes() << ", expected " << want.scalar_type()
         << want.sizes();
    return text.str();
  }
  if (got.numel() == 0) return "";
  const at::Tensor a = got.detach().to(at::kDouble), b = want.detach().to(at::kDouble);
  const at::Tensor finite = b.masked_fill(at::isfinite(b).logical_not(), 0);
  const double limit = tolerance * std::max(1.0, finite.abs().max().item<double>());
  const at::Tensor wrong =
      (a != b).logical_and((a - b).abs().le(limit).logical_not());  // NaN is wrong
  const int64_t count = wrong.sum().item<int64_t>();
  if (count == 0) return "";
  text << count << " of " << got.numel() << " entries off, largest difference "
       << (a - b).abs().masked_fill(wrong.logical_not(), 0).max().item<double>() << ", allowed "
       << limit;
  return text.str();
}

inline void compare_all(const std::string& what, const Tensors& got, const Tensors& want,
                        double tolerance, Complaints& bad) {
  if (got.size() != want.size()) return bad.push_back(what + ": number of results differs");
  for (size_t i = 0; i < got.size(); i++) {
    const std::string complaint = compare(got[i], want[i], tolerance);
    if (!complaint.empty()) bad.push_back(what + ": result " + std::to_string(i) + " " + complaint);
  }
}

inline Sizes fitted(Sizes n, const OperatorSamples& row) {
  if (row.one_token) n.T = n.S = 1;
  if (row.own_keys) n.S = n.T;
  return n;
}

// Sums run over at most a few hundred terms here: k * eps * sqrt(n), doubled for two
// implementations.
inline double tolerance_of(at::ScalarType dtype) { return 2 * 8 * unit_roundoff(dtype) * 16; }

// Meta gives the shapes and dtypes of CPU.
inline void check_meta(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                       const Tensors& cpu, Complaints& bad) {
  const Tensors meta =
      call(op, map_tensors(stack, [](const at::Tensor& t) { return t.to(at::kMeta); }));
  for (size_t i = 0; i < cpu.size(); i++)
    if (meta[i].sizes() != cpu[i].sizes() || meta[i].scalar_type() != cpu[i].scalar_type())
      bad.push_back("Meta: result " + std::to_string(i) + " " + compare(meta[i], cpu[i], 0));
}

// CPU, Meta, composite, strided inputs, for one sample of one operator.
inline Complaints check_values(const c10::OperatorHandle& op, const OperatorSamples& row,
                               const Sample& sample, const Sizes& sizes, at::ScalarType dtype) {
  at::NoGradGuard no_grad;
  Complaints bad;
  const torch::jit::Stack stack = sample.build(fitted(sizes, row), dtype);
  Tensors fast, composite, from_strided;
  {
    PathGuard guard(is_helper(op) ? Path::automatic : Path::fast_only);
    fast = call(op, copy_of(stack));
    from_strided = call(op, map_tensors(copy_of(stack), strided));
    check_meta(op, stack, fast, bad);
  }
  {
    PathGuard guard(Path::composite_only);
    composite = call(op, copy_of(stack));
  }
  for (const at::Tensor& t : row.comparable(fast))
    if (t.isnan().any().item<bool>()) bad.push_back("CPU: NaN in a result");
  const double tolerance = tolerance_of(dtype);
  compare_all("composite", row.comparable(composite), row.comparable(fast), tolerance, bad);
  compare_all("strided inputs", row.comparable(from_strided), row.comparable(fast), tolerance, bad);
  return bad;
}

// A fixed direction for the first result and, where `all`, for the others that carry a gradient.
inline at::Tensor weighted_sum(const Tensors& results) {
  at::Tensor total;
  for (size_t i = 0; i < results.size(); i++) {
    if (!results[i].requires_grad()) continue;
    const at::Tensor term =
        (results[i].to(at::kDouble) * samples::random(results[i].sizes(), at::kDouble, 40 + i))
            .sum();
    total = total.defined() ? total + term : term;
  }
  return total;
}

struct Gradients {
  bool refused = false;  // with a text
  std::string text;
  Tensors of_inputs;  // undefined where an input takes no gradient
};

inline Gradients gradients(const c10::OperatorHandle& op, const OperatorSamples& row,
                           const torch::jit::Stack& given) {
  Gradients out;
  const torch::jit::Stack stack = map_tensors(given, [](const at::Tensor& t) {
    return t.is_floating_point() ? t.detach().clone().requires_grad_(true) : t;
  });
  try {
    const at::Tensor total = weighted_sum(row.comparable(call(op, stack)));
    if (!total.defined()) return out;
    total.backward();
  } catch (const c10::Error& e) {
    out.refused = true;
    out.text = e.what_without_backtrace();
    return out;
  }
  for (const c10::IValue& x : stack)
    if (x.isTensor()) out.of_inputs.push_back(x.toTensor().grad());
  return out;
}

// Gradients of the fused path are those of the composite form, or are refused with a text that
// names the operator. `_backward` operators: these are second derivatives.
inline Complaints check_gradients(const c10::OperatorHandle& op, const OperatorSamples& row,
                                  const Sample& sample, at::ScalarType dtype) {
  Complaints bad;
  const torch::jit::Stack stack = sample.build(fitted(Sizes(), row), dtype);
  Gradients fast, composite;
  {
    PathGuard guard(is_helper(op) ? Path::automatic : Path::fast_only);
    fast = gradients(op, row, stack);
  }
  {
    PathGuard guard(Path::composite_only);
    composite = gradients(op, row, stack);
  }
  if (fast.refused) {
    if (fast.text.find(row.op) == std::string::npos)
      bad.push_back("gradient: refused without its name: " + fast.text);
    return bad;
  }
  if (!row.has_gradient && fast.of_inputs.empty()) return {};
  if (fast.of_inputs.empty()) return {"gradient: no result requires one, and none was refused"};
  for (size_t i = 0; i < fast.of_inputs.size(); i++) {
    const at::Tensor &got = fast.of_inputs[i], &want = composite.of_inputs.at(i);
    if (!got.defined() && !want.defined()) continue;
    const std::string name = "gradient of tensor " + std::to_string(i);
    if (!want.defined() || !got.defined()) {  // an absent gradient is one of zeros
      const at::Tensor& present = want.defined() ? want : got;
      if (present.ne(0).any().item<bool>()) bad.push_back(name + ": only one path has it");
      continue;
    }
    const std::string complaint = compare(got, want, 16 * tolerance_of(dtype));
    if (!complaint.empty()) bad.push_back(name + " " + complaint);
  }
  return bad;
}

}  // namespace hedgerow::testing_support
