#include "nn/mixers/head_alpha.h"

#include <ATen/ATen.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "hedgerow/error.h"

namespace hedgerow::nn {
namespace {

std::optional<double> number_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// [count]: what 1 + sigmoid() makes the start values of.
at::Tensor start_values(const std::string& kind, const std::string& start, int64_t count) {
  at::Tensor alpha;
  if (start == "spread") {
    alpha = at::arange(1, count + 1, at::kDouble) / static_cast<double>(count + 1) + 1;
  } else {
    const std::optional<double> value = number_of(start);
    HEDGEROW_CHECK(value && *value > 1 && *value < 2, kind,
                   ": start must be a number in (1, 2) or spread; got \"", start, "\"");
    alpha = at::full({count}, *value, at::kDouble);
  }
  return at::logit(alpha - 1).to(at::kFloat);
}

}  // namespace

std::vector<OptionSpec> alpha_option_specs(const std::string& default_alpha,
                                           const std::string& more_choices) {
  return {
      {"alpha",
       default_alpha,
       more_choices + "learned (1 + sigmoid of a parameter), or a number, at least 1: 1.5, 2",
       {}},
      {"share", std::string("head"), "what has an alpha of its own", {"head", "layer"}},
      {"start",
       std::string("1.02"),
       "where a learned alpha starts: a number in (1, 2), or spread over it",
       {}},
  };
}

HeadAlpha::HeadAlpha(const std::string& kind, const Options& options, int64_t heads)
    : by_layer_(options.get_string("share") == "layer") {
  const std::string& alpha = options.get_string("alpha");
  const at::Tensor start = start_values(kind, options.get_string("start"), by_layer_ ? 1 : heads);
  if (alpha == "learned") {
    start_ = start;
    return;
  }
  const std::optional<double> value = number_of(alpha);
  HEDGEROW_CHECK(value && std::isfinite(*value) && *value >= 1, kind,
                 ": alpha must be learned or a number, at least 1; got \"", alpha, "\"");
  fixed_ = *value;
}

HeadAlpha HeadAlpha::or_softmax(const std::string& kind, const Options& options, int64_t heads) {
  if (options.get_string("alpha") != "softmax") return {kind, options, heads};
  HeadAlpha none;
  none.is_softmax_ = true;
  return none;
}

std::vector<std::pair<std::string, at::Tensor>> HeadAlpha::by_head(const at::Tensor& raw,
                                                                   int64_t heads) const {
  if (is_softmax_) return {};
  return {{"alpha", value(raw, {}).detach().to(at::kDouble).expand({heads}).contiguous()}};
}

at::Tensor HeadAlpha::value(const at::Tensor& raw, const at::TensorOptions& options) const {
  if (!raw.defined()) return at::full({}, fixed_, options.dtype(at::kDouble).requires_grad(false));
  // in narrower types alpha - 1 would lose its digits near 1
  const at::Tensor wide = raw.scalar_type() == at::kDouble ? raw : raw.to(at::kFloat);
  const at::Tensor alpha = wide.sigmoid() + 1;
  return by_layer_ ? alpha.squeeze(0) : alpha;
}

}  // namespace hedgerow::nn
