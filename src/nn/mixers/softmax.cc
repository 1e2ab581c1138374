#include "nn/mixers/softmax.h"

#include <cmath>

#include "hedgerow/error.h"
#include "hedgerow/ops.h"
#include "nn/mixers/masked_rows.h"

namespace hedgerow::nn {
namespace {

class SoftmaxMixer : public Mixer {
 public:
  SoftmaxMixer(const HeadLayout& layout, const Options& options)
      : layout_(layout), options_(options) {
    check_one_head_count("softmax", layout);
  }

  std::string kind() const override { return "softmax"; }
  const Options& options() const override { return options_; }
  const HeadLayout& layout() const override { return layout_; }

  at::Tensor mix(const MixInput& in) override {
    return ops::softmax_attention(in.project.queries(), in.project.keys(), in.project.values(),
                                  in.mask.combined(), in.mask.is_causal);
  }

  at::Tensor weights(const MixInput& in) override {
    return ops::softmax_attention_weights(in.project.queries(), in.project.keys(),
                                          in.mask.combined(), in.mask.is_causal);
  }

  at::Tensor log_weights(const MixInput& in) override {
    const at::Tensor q = in.project.queries() / std::sqrt(static_cast<double>(layout_.head_dim));
    at::Tensor scores = grouped_matmul(q, in.project.keys());  // [B,H,T,S]
    const std::optional<at::Tensor>& mask = in.mask.attn_mask;
    if (mask && mask->scalar_type() != at::kBool) {
      // -inf becomes an exclusion below; an infinite score has no gradient to pass on.
      scores = scores + at::where(mask->isinf(), at::zeros_like(*mask), *mask);
    }
    return log_normalise(scores, in.mask.visible(scores.size(2), scores.size(3)));
  }

 private:
  HeadLayout layout_;
  Options options_;
};

}  // namespace

const MixerType& softmax_mixer_type() {
  static const MixerType type{
      "softmax",
      "softmax attention, the baseline",
      {},
      false,
      [](const HeadLayout& layout, const Options& options) -> std::shared_ptr<Mixer> {
        return std::make_shared<SoftmaxMixer>(layout, options);
      }};
  return type;
}

}  // namespace hedgerow::nn
