// The alpha of entmax as mechanisms have it: fixed, or learned for each head or for all of a layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "nn/mixer.h"

namespace hedgerow::nn {

// Options "alpha" (learned, or a number, at least 1), "share" (head or layer) and "start".
std::vector<OptionSpec> alpha_option_specs(const std::string& default_alpha,
                                           const std::string& more_choices = "");

class HeadAlpha {
 public:
  HeadAlpha() = default;
  // Throws Error that names the mechanism, the option and the value.
  HeadAlpha(const std::string& kind, const Options& options, int64_t heads);
  // The same for mechanisms whose option may also be "softmax".
  static HeadAlpha or_softmax(const std::string& kind, const Options& options, int64_t heads);
  bool is_softmax() const { return is_softmax_; }

  // What is to be trained: alpha = 1 + sigmoid(raw), [H], or [1] for a layer. Undefined if fixed.
  const at::Tensor& start() const { return start_; }
  // 0-dim or [H], differentiable in the registered parameter.
  at::Tensor value(const at::Tensor& raw, const at::TensorOptions& options) const;
  // [heads] as Mixer::head_values gives it: none of softmax.
  std::vector<std::pair<std::string, at::Tensor>> by_head(const at::Tensor& raw,
                                                          int64_t heads) const;

 private:
  at::Tensor start_;
  bool by_layer_ = false, is_softmax_ = false;
  double fixed_ = 0;
};

}  // namespace hedgerow::nn
