// AdamW (Loshchilov and Hutter, arXiv 1711.05101) by torch's fused kernel: one pass over each
// parameter. Without weight decay it is Adam (Kingma and Ba, arXiv 1412.6980).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "train/objective.h"

namespace hedgerow::train {

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

class AdamW {
 public:
  // Throws Error when two parameters share a name or one does not require a gradient.
  AdamW(std::vector<ParameterGroup> groups, const AdamWConfig& config);

  void zero_grad();

  // Euclidean norm of all gradients; scales them down to `max_norm` where it is larger and
  // max_norm > 0.
  double clip_grad_norm(double max_norm);

  // One update at lr_factor times each group's learning rate. Parameters without a gradient stay.
  void step(double lr_factor);

  // The first group's learning rate, which the log shows.
  double lr() const { return groups_.front().lr; }

  // Parameters and the optimiser's own tensors, by name; copying into them restores a state.
  std::vector<std::pair<std::string, at::Tensor>> state() const;
  // The parameters alone.
  std::vector<std::pair<std::string, at::Tensor>> parameters() const;

 private:
  struct Group {
    double lr, weight_decay;
    std::vector<std::string> names;
    std::vector<at::Tensor> parameters, first_moments, second_moments, step_counts;
  };
  std::vector<Group> groups_;
  AdamWConfig config_;
};

}  // namespace hedgerow::train
