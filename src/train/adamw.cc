#include "train/adamw.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <set>

#include "hedgerow/error.h"

namespace hedgerow::train {

AdamW::AdamW(std::vector<ParameterGroup> groups, const AdamWConfig& config) : config_(config) {
  std::set<std::string> names;
  for (ParameterGroup& from : groups) {
    if (from.parameters.empty()) continue;
    Group group{from.lr, from.weight_decay, {}, {}, {}, {}, {}};
    for (NamedParameter& p : from.parameters) {
      HEDGEROW_CHECK(names.insert(p.name).second, "train: parameter names must differ; got ",
                     p.name, " twice");
      HEDGEROW_CHECK(p.value.is_leaf() && p.value.requires_grad(), "train: ", p.name,
                     " must be a leaf that requires a gradient");
      group.names.push_back(p.name);
      group.parameters.push_back(p.value);
      group.first_moments.push_back(at::zeros_like(p.value));
      group.second_moments.push_back(at::zeros_like(p.value));
      group.step_counts.push_back(at::zeros({}, at::kFloat));
    }
    groups_.push_back(std::move(group));
  }
  HEDGEROW_CHECK(!groups_.empty(), "train: there must be a parameter to train; got none");
}

void AdamW::zero_grad() {
  for (Group& group : groups_)
    for (at::Tensor& p : group.parameters) p.mutable_grad().reset();
}

double AdamW::clip_grad_norm(double max_norm) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (Group& group : groups_)
    for (at::Tensor& p : group.parameters)
      if (p.grad().defined()) gradients.push_back(p.grad());
  if (gradients.empty()) return 0;
  const double norm = at::stack(at::_foreach_norm(gradients)).to(at::kDouble).norm().item<double>();
  if (max_norm > 0 && norm > max_norm) at::_foreach_mul_(gradients, max_norm / norm);
  return norm;
}

void AdamW::step(double lr_factor) {
  const at::NoGradGuard no_grad;
  for (Group& group : groups_) {
    std::vector<at::Tensor> p, g, m, v, t;
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      if (!group.parameters[i].grad().defined()) continue;
      p.push_back(group.parameters[i]);
      g.push_back(group.parameters[i].grad());
      m.push_back(group.first_moments[i]);
      v.push_back(group.second_moments[i]);
      t.push_back(group.step_counts[i].add_(1));
    }
    if (p.empty()) continue;
    at::_fused_adamw_(p, g, m, v, /*max_exp_avg_sqs=*/{}, t, group.lr * lr_factor, config_.beta1,
                      config_.beta2, group.weight_decay, config_.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false);
  }
}

std::vector<std::pair<std::string, at::Tensor>> AdamW::state() const {
  std::vector<std::pair<std::string, at::Tensor>> out;
  for (const Group& group : groups_) {
    for (size_t i = 0; i < group.names.size(); ++i) {
      out.emplace_back("parameter." + group.names[i], group.parameters[i]);
      out.emplace_back("first_moment." + group.names[i], group.first_moments[i]);
      out.emplace_back("second_moment." + group.names[i], group.second_moments[i]);
      out.emplace_back("steps." + group.names[i], group.step_counts[i]);
    }
  }
  return out;
}

std::vector<std::pair<std::string, at::Tensor>> AdamW::parameters() const {
  std::vector<std::pair<std::string, at::Tensor>> out;
  for (const Group& group : groups_)
    for (size_t i = 0; i < group.names.size(); ++i)
      out.emplace_back("parameter." + group.names[i], group.parameters[i]);
  return out;
}

}  // namespace hedgerow::train
