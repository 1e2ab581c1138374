#include "nn/mixers/entmax.h"

#include <ATen/ATen.h>

#include "hedgerow/error.h"
#include "hedgerow/ops.h"
#include "nn/mixers/head_alpha.h"
#include "nn/mixers/masked_rows.h"

namespace hedgerow::nn {
namespace {

const std::vector<OptionSpec>& option_specs() {
  static const std::vector<OptionSpec> specs = [] {
    std::vector<OptionSpec> all = alpha_option_specs("learned");
    all.push_back(
        {"length_scale", false, "scores times delta + beta (log n)^gamma of n visible keys", {}});
    return all;
  }();
  return specs;
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
  at::Tensor alpha(const at::TensorOptions& options) const {  // 0-dim or [H]
    return alpha_.value(alpha_raw_, options);
  }
  at::Tensor queries(const MixInput& in) const;

  HeadLayout layout_;
  Options options_;
  HeadAlpha alpha_;
  at::Tensor alpha_raw_, delta_, beta_, gamma_;
};

EntmaxMixer::EntmaxMixer(const HeadLayout& layout, const Options& options)
    : layout_(layout), options_(options), alpha_("entmax", options, layout.heads) {
  check_one_head_count("entmax", layout);
  const int64_t count = options.get_string("share") == "layer" ? 1 : layout.heads;
  if (alpha_.start().defined()) alpha_raw_ = register_parameter("alpha_raw", alpha_.start());
  if (options.get_bool("length_scale")) {
    delta_ = register_parameter("scale_delta", at::ones({count}));
    beta_ = register_parameter("scale_beta", at::zeros({count}));
    gamma_ = register_parameter("scale_gamma", at::ones({count}));
  }
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
  return log_of_weights(weights(in), in.mask);
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
