// What a training run minimises. The loop knows steps, optimisers and files; an objective knows
// models, data and losses.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hedgerow::train {

struct NamedParameter {
  std::string name;  // unique over all groups of an objective; names it in checkpoints
  at::Tensor value;  // a leaf that requires a gradient
};

// Parameters that share a learning rate.
struct ParameterGroup {
  std::vector<NamedParameter> parameters;
  double lr = 1e-3;  // the peak, which the schedule scales
  double weight_decay = 0;

  // Layers may have a parameter in common: it is taken once.
  void add(const std::string& name, const at::Tensor& value) {
    for (const NamedParameter& known : parameters)
      if (known.value.is_same(value)) return;
    parameters.push_back({name, value});
  }
};

struct StepResult {
  double loss = 0;
  std::vector<std::pair<std::string, double>> scalars;  // parts of the loss, for the log
  int64_t num_tokens = 0;
};

class Objective {
 public:
  virtual ~Objective() = default;

  // Asked once, before the first step.
  virtual std::vector<ParameterGroup> parameter_groups() = 0;

  // Adds the gradient of batch `index` (0, 1, ..) to the parameters' gradients. The result depends
  // on the parameters and the index alone, which is what makes a resumed run exact.
  virtual StepResult step(int64_t index) = 0;

  // The same loss on held-out data, without gradients; nothing where there is none.
  virtual std::optional<StepResult> evaluate() { return std::nullopt; }
};

}  // namespace hedgerow::train
