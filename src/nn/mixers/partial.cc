#include "nn/mixers/partial.h"

#include <ATen/ATen.h>

#include <limits>

#include "hedgerow/error.h"
#include "hedgerow/ops.h"
#include "nn/mixers/head_alpha.h"
#include "nn/mixers/masked_rows.h"
#include "nn/mixers/selected_positions.h"

namespace hedgerow::nn {
namespace {

constexpr const char* kKind = "partial";

const std::vector<OptionSpec>& option_specs() {
  static const std::vector<OptionSpec> specs = [] {
    std::vector<OptionSpec> all = selection_option_specs();
    const std::vector<OptionSpec> own = {
        {"sharing",
         std::string("layer"),
         "what has a reconstruction of its own",
         {"layer", "shared", "head"}},
        {"r",
         std::string("learned"),
         "the reconstruction and its mean: as fitted, or learned with the model",
         {"fixed", "learned"}},
        {"positions",
         std::string("common"),
         "what has positions of its own: common to all queries, each head, each query position",
         {"common", "head", "query"}},
        {"mean",
         std::string("query"),
         "what has a mean of scores of its own: as the reconstruction has, or each head and query "
         "position",
         {"common", "query"}},
        {"exact_up_to", int64_t{0}, "keys up to which attention is exact", {}},
        {"longer",
         std::string("refuse"),
         "sequences longer than the reconstruction",
         {"refuse", "exact"}},
    };
    all.insert(all.end(), own.begin(), own.end());
    const std::vector<OptionSpec> alpha =
        alpha_option_specs("softmax", "softmax, or entmax with this: ");
    all.insert(all.end(), alpha.begin(), alpha.end());
    return all;
  }();
  return specs;
}

class PartialMixer : public Mixer {
 public:
  PartialMixer(const HeadLayout& layout, const Options& options);

  std::string kind() const override { return kKind; }
  const Options& options() const override { return options_; }
  const HeadLayout& layout() const override { return layout_; }
  at::Tensor mix(const MixInput& in) override;
  at::Tensor weights(const MixInput& in) override;
  at::Tensor log_weights(const MixInput& in) override {
    return log_of_weights(weights(in), in.mask);
  }
  std::vector<std::pair<std::string, at::Tensor>> head_values() const override {
    return alpha_.by_head(alpha_raw_, layout_.heads);
  }
  std::optional<ScoreRequest> score_request() const override {
    ScoreRequest request;
    request.length = budget_.length;
    request.by_query = by_query_;
    request.pool_heads = by_query_ && !r_by_head_ && !mean_by_query_;
    request.mean_by_query = mean_by_query_ && !by_query_;
    request.over_layers = shares_parameters();
    return request;
  }
  std::optional<ScoreReconstruction> start_from(const ScoreSample& scores) override;
  void check_loaded() const override { check_positions(kKind, positions_, budget_.length); }
  std::optional<int64_t> max_keys() const override {
    if (options_.get_string("longer") == "exact") return std::nullopt;
    return budget_.length;
  }
  KeyRange made_for() const override { return {options_.get_int("exact_up_to"), budget_.length}; }
  bool shares_parameters() const override { return options_.get_string("sharing") == "shared"; }
  void share_parameters(Mixer& first) override;

 private:
  // What one call passes on: keys of the sequence, or as many as R has, those beyond masked.
  struct Call {
    at::Tensor positions, reconstruction;
    ops::PartialOptions options;
    int64_t padding = 0;  // keys to be added behind the sequence's
  };
  // 0-dim or [H]; none: softmax.
  std::optional<at::Tensor> alpha(const at::Tensor& like) const {
    if (alpha_.is_softmax()) return std::nullopt;
    return alpha_.value(alpha_raw_, like.options());
  }
  bool is_exact(int64_t num_keys) const;
  Call call(const MixInput& in, int64_t num_queries, int64_t num_keys) const;
  at::Tensor own(const char* name, const at::Tensor& value);

  HeadLayout layout_;
  Options options_;
  KeyBudget budget_;
  HeadAlpha alpha_;
  bool by_head_, by_query_, r_by_head_, mean_by_query_;  // positions; R; the mean
  at::Tensor positions_, reconstruction_, mean_, alpha_raw_;
};

PartialMixer::PartialMixer(const HeadLayout& layout, const Options& options)
    : layout_(layout),
      options_(options),
      budget_(key_budget(kKind, options)),
      alpha_(HeadAlpha::or_softmax(kKind, options, layout.heads)),
      by_head_(options.get_string("positions") == "head"),
      by_query_(options.get_string("positions") == "query"),
      r_by_head_(options.get_string("sharing") == "head"),
      mean_by_query_(options.get_string("mean") == "query") {
  check_one_head_count(kKind, layout);
  HEDGEROW_CHECK(!by_head_ || r_by_head_, kKind,
                 ": positions of each head need a reconstruction of each head (sharing head); got "
                 "sharing ",
                 options.get_string("sharing"));
  const int64_t exact = options.get_int("exact_up_to");
  const int64_t n = budget_.length, count = budget_.positions;
  HEDGEROW_CHECK(exact >= 0 && exact < n, kKind, ": exact_up_to must be in [0, ", n,
                 "), below the length; got ", exact);
  std::vector<int64_t> lead;  // of R and the mean: [], [H], [1,n] or [H,n]
  if (by_query_) lead = {r_by_head_ ? layout.heads : 1, n};
  if (!by_query_ && r_by_head_) lead = {layout.heads};
  const auto sizes = [](std::vector<int64_t> first, std::initializer_list<int64_t> last) {
    first.insert(first.end(), last);
    return first;
  };
  // Evenly spaced, and scores that are their mean, until start_from() or a checkpoint says more.
  const at::Tensor even = at::arange(count, at::kLong).mul(n).floor_divide(count);
  const std::vector<int64_t> position_lead = by_query_  ? lead
                                             : by_head_ ? std::vector<int64_t>{layout.heads}
                                                        : std::vector<int64_t>{};
  positions_ = register_buffer("positions", even.expand(sizes(position_lead, {count})).clone());
  reconstruction_ = own("reconstruction", at::zeros(sizes(lead, {n, count})));
  mean_ = own("mean", at::zeros(mean_by_query_ ? std::vector<int64_t>{layout.heads, n, n}
                                               : sizes(lead, {n})));
  if (alpha_.start().defined()) alpha_raw_ = register_parameter("alpha_raw", alpha_.start());
}

at::Tensor PartialMixer::own(const char* name, const at::Tensor& value) {
  return options_.get_string("r") == "learned" ? register_parameter(name, value)
                                               : register_buffer(name, value);
}

std::optional<ScoreReconstruction> PartialMixer::start_from(const ScoreSample& scores) {
  const std::vector<ScoreMoments>& parts = scores.parts;
  std::vector<ScoreMoments> pooled;  // over heads, which score_request() may have done
  for (const ScoreMoments& part : parts)
    pooled.push_back(mean_by_query_ ? part.pooled_within() : by_query_ ? part : part.pooled());
  const std::vector<ScoreMoments>& fitted = r_by_head_ ? parts : pooled;
  at::Tensor weights = scores.mean_weights;  // [H,n,n] -> [n], [H,n], [n,n] or [H,n,n]
  if (!by_query_) weights = weights.mean(1);
  if (!r_by_head_ || (!by_head_ && !by_query_)) weights = weights.mean(0);
  const at::Tensor positions =
      chosen_positions(options_, by_head_ || by_query_ ? fitted : pooled, weights);
  const ScoreReconstruction fit = fit_reconstruction(fitted, positions);
  const at::NoGradGuard no_grad;
  positions_.copy_(positions.reshape(positions_.sizes()));
  reconstruction_.copy_(fit.matrix.reshape(reconstruction_.sizes()));
  const bool by_query_first = mean_by_query_ && by_query_ && !r_by_head_;  // [T,H,n]
  mean_.copy_((by_query_first ? fit.mean.transpose(0, 1) : fit.mean).reshape(mean_.sizes()));
  return fit;
}

void PartialMixer::share_parameters(Mixer& first) {
  auto* other = dynamic_cast<PartialMixer*>(&first);
  HEDGEROW_CHECK(other != nullptr, kKind, ": parameters are shared with the same mechanism; got ",
                 first.kind());
  const auto take = [&](const char* name, at::Tensor& ours, const at::Tensor& theirs) {
    HEDGEROW_CHECK(ours.sizes() == theirs.sizes(), kKind, ": layers that share their ", name,
                   " must have the same options; got ", theirs.sizes(), " and ", ours.sizes());
    HEDGEROW_CHECK(ours.equal(theirs), kKind, ": layers that share their ", name,
                   " must hold the same values");
    if (parameters_.contains(name)) {
      parameters_[name] = ours = theirs;  // one leaf, which has one gradient
    } else {
      ours.set_data(theirs);  // a buffer of its own over the same memory
    }
  };
  take("positions", positions_, other->positions_);
  take("reconstruction", reconstruction_, other->reconstruction_);
  if (!mean_by_query_) take("mean", mean_, other->mean_);
}

bool PartialMixer::is_exact(int64_t num_keys) const {
  if (num_keys <= options_.get_int("exact_up_to")) return true;
  if (num_keys <= budget_.length) return false;
  HEDGEROW_CHECK(options_.get_string("longer") == "exact", kKind, ": at most ", budget_.length,
                 " keys, the length that the reconstruction is made for; got ", num_keys);
  return true;
}

// The mask of a sequence and of `padding` keys behind it that nobody sees.
at::Tensor padded_mask(const AttentionMask& mask, int64_t num_queries, int64_t num_keys,
                       int64_t padding) {
  const auto longer = [&](const at::Tensor& t) {  // [..,1 or S] -> [..,S + padding]
    std::vector<int64_t> sizes = t.sizes().vec();
    sizes.back() = num_keys;
    return at::constant_pad_nd(t.expand(sizes), {0, padding}, /*value=*/0);
  };
  const at::Tensor visible =
      longer(mask.visible(num_queries, num_keys).value_or(at::ones({1}, at::kBool)));
  if (!mask.attn_mask || mask.attn_mask->scalar_type() == at::kBool) return visible;
  return at::where(visible, longer(*mask.attn_mask), -std::numeric_limits<double>::infinity());
}

PartialMixer::Call PartialMixer::call(const MixInput& in, int64_t num_queries,
                                      int64_t num_keys) const {
  Call call;
  call.options.attn_mask = in.mask.combined();
  call.options.is_causal = in.mask.is_causal;
  const auto of_queries = [&](const at::Tensor& t) {  // [1 or H,n,..]
    const int64_t end = in.first_position + num_queries;
    HEDGEROW_CHECK(end <= budget_.length, kKind, ": at most ", budget_.length,
                   " queries, the length that it is made for; got ", end);
    return t.narrow(1, in.first_position, num_queries);
  };
  const at::Tensor mean = mean_by_query_ || by_query_ ? of_queries(mean_) : mean_;
  if (!by_query_ && !by_head_) {
    call.positions = positions_below(kKind, positions_, num_keys, budget_.length);
    call.reconstruction =
        reconstruction_.narrow(-2, 0, num_keys).narrow(-1, 0, call.positions.size(0));
    call.options.mean = mean.narrow(-1, 0, num_keys);
    return call;
  }
  // Each head or query may lose other positions to the end of a short sequence: they stay, masked.
  call.positions = positions_;
  call.reconstruction = reconstruction_;
  call.options.mean = mean;
  call.padding = budget_.length - num_keys;
  if (call.padding > 0) {
    call.options.attn_mask = padded_mask(in.mask, num_queries, num_keys, call.padding);
    call.options.is_causal = false;
  }
  if (by_query_) {
    call.positions = of_queries(positions_);
    call.reconstruction = of_queries(reconstruction_);
  }
  return call;
}

at::Tensor padded(const at::Tensor& t, int64_t padding) {  // [B,H,S,D] along S
  return padding == 0 ? t : at::constant_pad_nd(t, {0, 0, 0, padding});
}

at::Tensor PartialMixer::mix(const MixInput& in) {
  const at::Tensor q = in.project.queries(), v = in.project.values();
  const std::optional<at::Tensor> alpha = this->alpha(q);
  if (is_exact(v.size(2))) {
    const at::Tensor k = in.project.keys();
    return alpha ? ops::entmax_attention(q, k, v, *alpha, in.mask.combined(), in.mask.is_causal)
                 : ops::softmax_attention(q, k, v, in.mask.combined(), in.mask.is_causal);
  }
  Call c = call(in, q.size(2), v.size(2));
  c.options.alpha = alpha;
  if (!by_query_ && !by_head_)  // keys of the other positions are never projected
    return ops::partial_attention_selected(q, in.project.keys(c.positions), v, c.positions,
                                           c.reconstruction, c.options);
  return ops::partial_attention(q, padded(in.project.keys(), c.padding), padded(v, c.padding),
                                c.positions, c.reconstruction, c.options);
}

at::Tensor PartialMixer::weights(const MixInput& in) {
  const at::Tensor q = in.project.queries(), k = in.project.keys();
  const std::optional<at::Tensor> alpha = this->alpha(q);
  if (is_exact(k.size(2)))
    return alpha
               ? ops::entmax_attention_weights(q, k, *alpha, in.mask.combined(), in.mask.is_causal)
               : ops::softmax_attention_weights(q, k, in.mask.combined(), in.mask.is_causal);
  Call c = call(in, q.size(2), k.size(2));
  c.options.alpha = alpha;
  return ops::partial_attention_weights(q, padded(k, c.padding), c.positions, c.reconstruction,
                                        c.options)
      .narrow(3, 0, k.size(2));
}

}  // namespace

const MixerType& partial_mixer_type() {
  static const MixerType type{
      kKind,
      "partial computation: a few scores of a query, the others reconstructed from them",
      option_specs(),
      false,
      [](const HeadLayout& layout, const Options& options) -> std::shared_ptr<Mixer> {
        return std::make_shared<PartialMixer>(layout, options);
      },
      /*imitates_softmax=*/false,
      /*one_length=*/true,
      /*start_lr=*/3e-3};
  return type;
}

}  // namespace hedgerow::nn
