#include "nn/mixers/talking_heads.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "hedgerow/error.h"
#include "hedgerow/ops.h"
#include "nn/mixers/head_alpha.h"
#include "nn/mixers/masked_rows.h"

namespace hedgerow::nn {
namespace {

constexpr const char* kKind = "talking-heads";
constexpr std::array<const char*, 4> kDynamicTerms = {"x_logits", "m_logits", "x_weights",
                                                      "m_weights"};

const std::vector<OptionSpec>& option_specs() {
  static const std::vector<OptionSpec> specs = [] {
    std::vector<OptionSpec> all = alpha_option_specs("softmax", "softmax, or entmax with this: ");
    all.push_back({"logits", true, "a projection of heads before the softmax", {}});
    all.push_back({"weights", true, "a projection of heads after it", {}});
    all.push_back({"dynamic",
                   std::string("none"),
                   "terms that depend on tokens: none, all, or some of x_logits+m_logits+x_weights+"
                   "m_weights",
                   {}});
    all.push_back({"heads", int64_t{0}, "heads of the softmax; 0: the model's", {}});
    all.push_back({"key_heads", int64_t{0}, "heads of q and k; 0: as the softmax", {}});
    all.push_back({"value_heads", int64_t{0}, "heads of v and the output; 0: as the softmax", {}});
    all.push_back(
        {"init", std::string("identity"), "where projections start", {"identity", "random"}});
    all.push_back({"seed", int64_t{0}, "of a random start", {}});
    return all;
  }();
  return specs;
}

// The heads of a model's layout that the options leave.
HeadLayout layout_of(const HeadLayout& model, const Options& options) {
  HEDGEROW_CHECK(model.key_heads == model.heads && model.heads == model.value_heads, kKind,
                 ": the layer that it takes the place of must have one head count for q, weights "
                 "and output; got ",
                 model.key_heads, "/", model.heads, "/", model.value_heads);
  HeadLayout layout = model;
  const auto take = [&](const char* name, int64_t most, int64_t& heads) {
    const int64_t count = options.get_int(name);
    HEDGEROW_CHECK(count >= 0 && count <= most, kKind, ": ", name, " must be in [1, ", most,
                   "], or 0 for as many; got ", count);
    if (count > 0) heads = count;
  };
  take("heads", model.heads, layout.heads);
  layout.key_heads = layout.value_heads = layout.heads;
  take("key_heads", layout.heads, layout.key_heads);
  take("value_heads", layout.heads, layout.value_heads);
  if (layout == model) return layout;
  HEDGEROW_CHECK(model.kv_heads == model.key_heads, kKind,
                 ": fewer heads need a model without grouped heads; got ", model.kv_heads,
                 " key/value heads for ", model.key_heads);
  layout.kv_heads = layout.key_heads;
  return layout;
}

std::vector<std::string> dynamic_terms(const std::string& text) {
  if (text == "none") return {};
  if (text == "all") return {kDynamicTerms.begin(), kDynamicTerms.end()};
  std::vector<std::string> terms;
  std::istringstream parts(text);
  for (std::string term; std::getline(parts, term, '+');) {
    HEDGEROW_CHECK(std::count(kDynamicTerms.begin(), kDynamicTerms.end(), term) == 1, kKind,
                   ": dynamic must be none, all, or some of x_logits, m_logits, x_weights and "
                   "m_weights joined by +; got \"",
                   text, "\"");
    terms.push_back(term);
  }
  return terms;
}

class TalkingHeadsMixer : public Mixer {
 public:
  TalkingHeadsMixer(const HeadLayout& model, const Options& options);

  std::string kind() const override { return kKind; }
  const Options& options() const override { return options_; }
  const HeadLayout& layout() const override { return layout_; }

  at::Tensor mix(const MixInput& in) override {
    return ops::talking_heads_attention(in.project.queries(), in.project.keys(),
                                        in.project.values(), arguments(in, true));
  }
  at::Tensor weights(const MixInput& in) override {
    return ops::talking_heads_attention_weights(in.project.queries(), in.project.keys(),
                                                arguments(in, false));
  }
  at::Tensor log_weights(const MixInput& in) override {
    return log_of_weights(weights(in), in.mask);
  }

  HeadChoice start_from(const HeadGrams& grams) override;

  std::vector<std::pair<std::string, at::Tensor>> head_values() const override {
    return alpha_.by_head(alpha_raw_, layout_.heads);
  }
  std::vector<std::pair<std::string, at::Tensor>> head_matrices() const override {
    std::vector<std::pair<std::string, at::Tensor>> matrices;
    for (const auto& [name, value] :
         {std::pair{"logits_proj", logits_}, std::pair{"weights_proj", weights_}}) {
      if (value.defined()) matrices.emplace_back(name, value.detach().to(at::kDouble));
    }
    return matrices;
  }

 private:
  at::Tensor start(int64_t in, int64_t out) const;
  at::Tensor dynamic_start(int64_t in, int64_t out) const;
  ops::TalkingHeadsOptions arguments(const MixInput& in, bool mixed) const;

  HeadLayout layout_;
  Options options_;
  HeadAlpha alpha_;
  at::Tensor logits_, weights_, alpha_raw_;
  std::array<at::Tensor, 4> dynamic_;  // in the order of kDynamicTerms
};

TalkingHeadsMixer::TalkingHeadsMixer(const HeadLayout& model, const Options& options)
    : layout_(layout_of(model, options)),
      options_(options),
      alpha_(HeadAlpha::or_softmax(kKind, options, layout_.heads)) {
  const int64_t key_heads = layout_.key_heads, heads = layout_.heads,
                value_heads = layout_.value_heads;
  const bool logits = options.get_bool("logits"), weights = options.get_bool("weights");
  HEDGEROW_CHECK(logits || key_heads == heads, kKind, ": ", key_heads, " key heads for ", heads,
                 " softmax heads need the logits' projection");
  HEDGEROW_CHECK(weights || heads == value_heads, kKind, ": ", value_heads, " value heads for ",
                 heads, " softmax heads need the weights' projection");
  if (logits) logits_ = register_parameter("logits_proj", start(key_heads, heads));
  if (weights) weights_ = register_parameter("weights_proj", start(heads, value_heads));
  for (const std::string& term : dynamic_terms(options.get_string("dynamic"))) {
    const size_t i =
        std::find(kDynamicTerms.begin(), kDynamicTerms.end(), term) - kDynamicTerms.begin();
    const bool of_logits = i < 2;
    HEDGEROW_CHECK(of_logits ? logits : weights, kKind, ": the dynamic term ", term,
                   " needs the projection that it adds to");
    HEDGEROW_CHECK(layout_.model_dim > 0, kKind, ": the dynamic term ", term,
                   " needs to know the width of tokens");
    dynamic_[i] = register_parameter(
        term, of_logits ? dynamic_start(key_heads, heads) : dynamic_start(heads, value_heads));
  }
  if (alpha_.start().defined()) alpha_raw_ = register_parameter("alpha_raw", alpha_.start());
}

// [in,out]: the identity, each head in turn where the counts differ; or N(0, 1/in).
at::Tensor TalkingHeadsMixer::start(int64_t in, int64_t out) const {
  if (options_.get_string("init") == "identity") {
    const at::Tensor i = at::arange(in).unsqueeze(1), o = at::arange(out).unsqueeze(0);
    return (in < out ? o.remainder(in).eq(i) : i.remainder(out).eq(o)).to(at::kFloat);
  }
  const at::Generator generator =
      at::make_generator<at::CPUGeneratorImpl>(options_.get_int("seed"));
  return at::randn({in, out}, generator, at::kFloat) / std::sqrt(static_cast<double>(in));
}

at::Tensor TalkingHeadsMixer::dynamic_start(int64_t in, int64_t out) const {
  if (options_.get_string("init") == "identity") return at::zeros({layout_.model_dim, in, out});
  const at::Generator generator =
      at::make_generator<at::CPUGeneratorImpl>(options_.get_int("seed") + 1);
  const double std = std::sqrt(0.01 / static_cast<double>(in * layout_.model_dim));
  return at::randn({layout_.model_dim, in, out}, generator, at::kFloat) * std;
}

HeadChoice TalkingHeadsMixer::start_from(const HeadGrams& grams) {
  const at::NoGradGuard no_grad;
  const std::vector<int64_t> kept = prune_heads(grams.contributions, layout_.heads);
  const at::Tensor index = at::tensor(kept, at::kLong);
  const auto choose = [&](const at::Tensor& of, int64_t count, const at::Tensor& projection,
                          bool to_heads) {
    if (count == layout_.heads) return kept;
    const StandIns chosen = choose_stand_ins(
        of.index_select(0, index).index_select(1, index).index_select(2, index), count);
    projection.copy_(to_heads ? chosen.coefficients : chosen.coefficients.t());
    std::vector<int64_t> heads;
    for (const int64_t i : chosen.kept) heads.push_back(kept[i]);
    return heads;
  };
  return {choose(grams.logits, layout_.key_heads, logits_, true),
          choose(grams.outputs, layout_.value_heads, weights_, false)};
}

// mixed: with the second projection.
ops::TalkingHeadsOptions TalkingHeadsMixer::arguments(const MixInput& in, bool mixed) const {
  const auto given = [](const at::Tensor& t) {
    return t.defined() ? std::optional<at::Tensor>(t) : std::nullopt;
  };
  const auto term = [&](size_t i) -> std::optional<at::Tensor> {
    if (!dynamic_[i].defined()) return std::nullopt;
    const at::Tensor& tokens = i % 2 == 0 ? in.x : in.m;
    HEDGEROW_CHECK(tokens.defined(), kKind, ": the dynamic term ", kDynamicTerms[i],
                   " needs the tokens");
    const at::Tensor& w = dynamic_[i];  // [d_model,in,out]
    return tokens.matmul(w.flatten(1)).unflatten(-1, {w.size(1), w.size(2)});
  };
  ops::TalkingHeadsOptions arguments;
  arguments.logits_proj = given(logits_);
  arguments.x_logits = term(0);
  arguments.m_logits = term(1);
  if (mixed) {
    arguments.weights_proj = given(weights_);
    arguments.x_weights = term(2);
    arguments.m_weights = term(3);
  }
  arguments.attn_mask = in.mask.combined();
  arguments.is_causal = in.mask.is_causal;
  if (!alpha_.is_softmax())
    arguments.alpha = alpha_.value(alpha_raw_, in.project.queries().options());
  return arguments;
}

}  // namespace

const MixerType& talking_heads_mixer_type() {
  static const MixerType type{
      kKind,
      "talking heads: heads mixed before and after the softmax",
      option_specs(),
      false,
      [](const HeadLayout& layout, const Options& options) -> std::shared_ptr<Mixer> {
        return std::make_shared<TalkingHeadsMixer>(layout, options);
      },
      /*imitates_softmax=*/false};
  return type;
}

}  // namespace hedgerow::nn
