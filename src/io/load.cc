// Loading a model's tensors with one report of everything that is wrong.
#include <ATen/ATen.h>

#include <set>

#include "hedgerow/error.h"
#include "io/tensors.h"

namespace hedgerow::io {
namespace {

using formats::TensorView;

// "2 tensors are missing: a, b"
void add_complaint(std::string& report, const std::vector<std::string>& items,
                   const std::string& what) {
  if (items.empty()) return;
  report += concat(report.empty() ? "" : "; ", items.size(),
                   items.size() == 1 ? " tensor " : " tensors ", what, ": ");
  for (size_t i = 0; i < items.size(); ++i) report += (i == 0 ? "" : ", ") + items[i];
}

struct Findings {
  std::vector<std::string> missing, unexpected, twice, shapes, dtypes, integers;

  std::string report() const {
    std::string text;
    add_complaint(text, missing, "missing");
    add_complaint(text, unexpected, "unexpected");
    add_complaint(text, twice, "stored under two names");
    add_complaint(text, shapes, "of another shape than the config gives");
    add_complaint(text, dtypes, "not floating-point (F64, F32, F16, BF16)");
    add_complaint(text, integers, "not int64 (I64)");
    return text;
  }
};

// The stored tensor for a target, noting which names are taken.
const TensorView* find_source(const formats::Checkpoint& checkpoint, const TensorSource& source,
                              std::set<std::string, std::less<>>& taken, Findings& findings) {
  const TensorView* found = nullptr;
  std::string first_name;
  for (const std::string& name : source.names) {
    const TensorView* view = checkpoint.find(name);
    if (view == nullptr) continue;
    taken.insert(name);
    if (found != nullptr) {
      findings.twice.push_back(first_name + " = " + name);
    } else {
      found = view;
      first_name = name;
    }
  }
  for (const std::string& name : source.ties) {
    const TensorView* view = checkpoint.find(name);
    if (view == nullptr) continue;
    taken.insert(name);
    if (found == nullptr) found = view;
  }
  if (found == nullptr) findings.missing.push_back(source.names.front());
  return found;
}

bool is_floating(formats::Dtype dtype) {
  const std::optional<at::ScalarType> type = scalar_type(dtype);
  return type && at::isFloatingType(*type);
}

}  // namespace

void load_tensors(const formats::Checkpoint& checkpoint, const std::string& where,
                  const std::vector<NamedTensor>& targets, const LoadRules& rules) {
  Findings findings;
  std::set<std::string, std::less<>> taken;
  std::vector<const TensorView*> sources;
  for (const NamedTensor& target : targets) {
    const TensorSource source = rules.source(target.name);
    const TensorView* view = find_source(checkpoint, source, taken, findings);
    sources.push_back(view);
    if (view == nullptr) continue;
    const std::string& name = source.names.front();
    if (at::IntArrayRef(view->shape) != target.tensor.sizes()) {
      findings.shapes.push_back(concat(name, " must be ",
                                       formats::shape_text(target.tensor.sizes().vec()), ", got ",
                                       formats::shape_text(view->shape)));
    }
    const bool floating = target.tensor.is_floating_point();
    if (floating ? !is_floating(view->dtype) : scalar_type(view->dtype) != at::kLong) {
      (floating ? findings.dtypes : findings.integers)
          .push_back(concat(name, " ", formats::dtype_name(view->dtype)));
    }
  }
  for (const auto& [name, view] : checkpoint.tensors()) {
    if (taken.count(name) == 0 && !rules.may_ignore(name)) findings.unexpected.push_back(name);
  }
  const std::string report = findings.report();
  HEDGEROW_CHECK(report.empty(), where, ": ", report);

  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < targets.size(); ++i) {
    at::Tensor target = targets[i].tensor;
    target.copy_(to_tensor(targets[i].name, *sources[i]));
  }
}

}  // namespace hedgerow::io
