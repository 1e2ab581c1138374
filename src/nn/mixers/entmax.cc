#include "nn/mixers/entmax.h"

#include <ATen/ATen.h>

#include <charconv>
#include <cmath>

#include "hedgerow/error.h"
#include "hedgerow/ops.h"
#include "nn/mixers/masked_rows.h"

namespace hedgerow::nn {
namespace {

const std::vector<OptionSpec>& option_specs() {
  static const std::vector<OptionSpec> specs = {
      {"alpha",
       std::string("learned"),
       "learned (1 + sigmoid of a parameter), or a number, at least 1: 1.5, 2",
       {}},
      {"share", std::string("head"), "what has an alpha of its own", {"head", "layer"}},
      {"start",
       std::string("1.02"),
       "where a learned alpha starts: a number in (1, 2), or spread over it",
       {}},
      {"length_scale", false, "scores times delta + beta (log n)^gamma of n visible keys", {}},
  };
  return specs;
}

std::optional<double> number_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// [count]: what 1 + sigmoid() makes the start values of.
at::Tensor start_values(const std::string& start, int64_t count) {
  at::Tensor alpha;
  if (start == "spread") {
    alpha = at::arange(1, count + 1, at::kDouble) / static_cast<double>(count + 1) + 1;
  } else {
    const std::optional<double> value = number_of(start);
    HEDGEROW_CHECK(value && *value > 1 && *value < 2,
                   "entmax: start must be a number in (1, 2) or spread; got \"", start, "\"");
    alpha = at::full({count}, *value, at::kDouble);
  }
  return at::logit(alpha - 1).to(at::kFloat);
}

class EntmaxMixer : public Mixer {
 public:
  EntmaxMixer(const HeadLayout& layout, const Options& options);

  std::string kind() const override { return "entmax"; }
  const Options& options() const override { return options_; }
  const HeadLayout& layout() const override { return layout_; }
  at::Tensor mix(const MixInput& in) override;
  at::Tensor weights(const MixInput& in) override;
  at::Tensor log_weights(const MixInput& in) override;
  std::vector<std::pair<std::string, at::Tensor>> head_values() const override;

 private:
  at::Tensor alpha(const at::TensorOptions& options) const;  // 0-dim or [H]
  at::Tensor queries(const MixInput& in) const;

  HeadLayout layout_;
  Options options_;
  double fixed_alpha_ = 0;
  at::Tensor alpha_raw_, delta_, beta_, gamma_;
};

EntmaxMixer::EntmaxMixer(const HeadLayout& layout, const Options& options)
    : layout_(layout), options_(options) {
  HEDGEROW_CHECK(layout.key_heads == layout.heads && layout.heads == layout.value_heads,
                 "entmax: one head count for q, weights and output; got ", layout.key_heads, "/",
                 layout.heads, "/", layout.value_heads);
  const int64_t count = options.get_string("share") == "layer" ? 1 : layout.heads;
  const std::string& alpha = options.get_string("alpha");
  const at::Tensor start = start_values(options.get_string("start"), count);
  if (alpha == "learned") {
    alpha_raw_ = register_parameter("alpha_raw", start);
  } else {
    const std::optional<double> value = number_of(alpha);
    HEDGEROW_CHECK(value && std::isfinite(*value) && *value >= 1,
                   "entmax: alpha must be learned or a number, at least 1; got \"", alpha, "\"");
    fixed_alpha_ = *value;
  }
  if (options.get_bool("length_scale")) {
    delta_ = register_parameter("scale_delta", at::ones({count}));
    beta_ = register_parameter("scale_beta", at::zeros({count}));
    gamma_ = register_parameter("scale_gamma", at::ones({count}));
  }
}

at::Tensor EntmaxMixer::alpha(const at::TensorOptions& options) const {
  if (!alpha_raw_.defined())
    return at::full({}, fixed_alpha_, options.dtype(at::kDouble).requires_grad(false));
  // in narrower types alpha - 1 would lose its digits near 1
  const at::Tensor raw =
      alpha_raw_.scalar_type() == at::kDouble ? alpha_raw_ : alpha_raw_.to(at::kFloat);
  const at::Tensor alpha = raw.sigmoid() + 1;
  return options_.get_string("share") == "layer" ? alpha.squeeze(0) : alpha;
}

// Scaling a query scales its scores.
at::Tensor EntmaxMixer::queries(const MixInput& in) const {
  const at::Tensor q = in.project.queries();  // [B,H,T,D]
  if (!delta_.defined()) return q;
  const int64_t num_keys = in.project.keys().size(2);
  const std::optional<at::Tensor> visible = in.mask.visible(q.size(2), num_keys);
  at::Tensor n;  // [..,T or 1,1]
  if (visible) {
    const at::Tensor seen = visible->expand({visible->dim() > 3 ? visible->size(0) : 1,
                                             visible->dim() > 2 ? visible->size(-3) : 1,
                                             visible->dim() > 1 ? visible->size(-2) : 1, num_keys});
    n = seen.sum(-1, /*keepdim=*/true).to(q.scalar_type());
  } else {
    n = at::full({1, 1, 1, 1}, static_cast<double>(num_keys), q.options().requires_grad(false));
  }
  // fewer than 2 keys: the scale changes no weight, and log 1 = 0 has no power to differentiate
  const at::Tensor log_n = n.clamp_min(2).log();
  const auto by_head = [](const at::Tensor& t) { return t.view({1, t.size(0), 1, 1}); };
  return q * (by_head(delta_) + by_head(beta_) * log_n.pow(by_head(gamma_)));
}

at::Tensor EntmaxMixer::mix(const MixInput& in) {
  const at::Tensor q = queries(in);
  return ops::entmax_attention(q, in.project.keys(), in.project.values(), alpha(q.options()),
                               in.mask.combined(), in.mask.is_causal);
}

at::Tensor EntmaxMixer::weights(const MixInput& in) {
  const at::Tensor q = queries(in);
  return ops::entmax_attention_weights(q, in.project.keys(), alpha(q.options()), in.mask.combined(),
                                       in.mask.is_causal);
}

at::Tensor EntmaxMixer::log_weights(const MixInput& in) {
  const at::Tensor p = weights(in);
  const std::optional<at::Tensor> visible = in.mask.visible(p.size(2), p.size(3));
  return log_normalise(log_with_floor(p, visible), visible);
}

std::vector<std::pair<std::string, at::Tensor>> EntmaxMixer::head_values() const {
  const auto by_head = [this](const at::Tensor& t) {
    return t.detach().to(at::kDouble).expand({layout_.heads}).contiguous();
  };
  std::vector<std::pair<std::string, at::Tensor>> values = {{"alpha", by_head(alpha({}))}};
  if (delta_.defined()) {
    values.emplace_back("scale_delta", by_head(delta_));
    values.emplace_back("scale_beta", by_head(beta_));
    values.emplace_back("scale_gamma", by_head(gamma_));
  }
  return values;
}

}  // namespace

const MixerType& entmax_mixer_type() {
  static const MixerType type{
      "entmax",
      "alpha-entmax: sparse attention whose alpha each head may learn",
      option_specs(),
      false,
      [](const HeadLayout& layout, const Options& options) -> std::shared_ptr<Mixer> {
        return std::make_shared<EntmaxMixer>(layout, options);
      },
      /*imitates_softmax=*/false};
  return type;
}

}  // namespace hedgerow::nn
