#include "nn/mixers/fewer_keys.h"

#include <ATen/ATen.h>

#include <limits>

#include "hedgerow/error.h"
#include "hedgerow/ops.h"
#include "nn/mixers/masked_rows.h"
#include "nn/mixers/selected_positions.h"

namespace hedgerow::nn {
namespace {

constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

// A softmax mechanism with a budget of keys.
class BudgetMixer : public Mixer {
 public:
  BudgetMixer(const char* kind, const HeadLayout& layout, const Options& options)
      : kind_(kind), layout_(layout), options_(options), budget_(key_budget(kind, options)) {
    check_one_head_count(kind, layout);
  }
  std::string kind() const override { return kind_; }
  const Options& options() const override { return options_; }
  const HeadLayout& layout() const override { return layout_; }
  KeyRange made_for() const override { return {0, budget_.length}; }
  at::Tensor log_weights(const MixInput& in) override {
    return log_of_weights(weights(in).clamp_min(0), in.mask);
  }

 protected:
  void check_length(int64_t num_keys) const {
    HEDGEROW_CHECK(num_keys <= budget_.length, kind_, ": at most ", budget_.length,
                   " keys, the length that it is made for; got ", num_keys);
  }

  const char* kind_;
  HeadLayout layout_;
  Options options_;
  KeyBudget budget_;
};

// The mask of some keys, int64 [P]; causality becomes part of it.
std::optional<at::Tensor> mask_at(const AttentionMask& mask, const at::Tensor& positions,
                                  int64_t num_queries, int64_t num_keys) {
  const auto at = [&](at::Tensor t) { return t.size(-1) == 1 ? t : t.index_select(-1, positions); };
  const std::optional<at::Tensor> visible = mask.visible(num_queries, num_keys);
  if (!visible) return std::nullopt;
  if (!mask.attn_mask || mask.attn_mask->scalar_type() == at::kBool) return at(*visible);
  return at::where(at(*visible), at(*mask.attn_mask), kMinusInf);
}

class SelectedKeysMixer : public BudgetMixer {
 public:
  SelectedKeysMixer(const HeadLayout& layout, const Options& options)
      : BudgetMixer("selected-keys", layout, options) {
    const int64_t count = budget_.positions;
    positions_ = register_buffer(
        "positions", at::arange(count, at::kLong).mul(budget_.length).floor_divide(count));
  }

  std::optional<ScoreRequest> score_request() const override {
    return ScoreRequest{budget_.length, false, false};
  }
  std::optional<ScoreReconstruction> start_from(const ScoreSample& scores) override {
    std::vector<ScoreMoments> pooled;
    for (const ScoreMoments& part : scores.parts) pooled.push_back(part.pooled());
    positions_.copy_(chosen_positions(options_, pooled, scores.mean_weights.mean({0, 1})));
    return std::nullopt;
  }
  void check_loaded() const override { check_positions(kind_, positions_, budget_.length); }
  std::optional<int64_t> max_keys() const override { return budget_.length; }

  at::Tensor mix(const MixInput& in) override {
    const at::Tensor q = in.project.queries();
    const at::Tensor positions = positions_of(num_keys(in));
    return ops::softmax_attention(q, in.project.keys(positions), in.project.values(positions),
                                  mask_at(in.mask, positions, q.size(2), num_keys(in)));
  }

  at::Tensor weights(const MixInput& in) override {
    const at::Tensor q = in.project.queries(), k = in.project.keys();
    const at::Tensor positions = positions_of(k.size(2));
    const at::Tensor some = ops::softmax_attention_weights(
        q, k.index_select(2, positions), mask_at(in.mask, positions, q.size(2), k.size(2)));
    return at::zeros({q.size(0), q.size(1), q.size(2), k.size(2)}, some.options())
        .index_copy(3, positions, some);
  }

 private:
  // Of the tokens: all keys are never projected.
  static int64_t num_keys(const MixInput& in) {
    return in.m.defined() ? in.m.size(1) : in.project.keys().size(2);
  }
  at::Tensor positions_of(int64_t num_keys) const {
    check_length(num_keys);
    return positions_below(kind_, positions_, num_keys, budget_.length);
  }

  at::Tensor positions_;
};

class LinformerMixer : public BudgetMixer {
 public:
  LinformerMixer(const HeadLayout& layout, const Options& options)
      : BudgetMixer("linformer", layout, options) {
    const int64_t n = budget_.length, count = budget_.positions;
    const at::Tensor stretch = at::arange(n, at::kLong).mul(count).floor_divide(n);  // of each key
    at::Tensor mean = at::one_hot(stretch, count).t().to(at::kFloat);                // [P,n]
    mean = mean / mean.sum(1, /*keepdim=*/true);
    key_proj_ = register_parameter("key_proj", mean.clone());
    value_proj_ = register_parameter("value_proj", mean.clone());
  }
  std::optional<int64_t> max_keys() const override { return budget_.length; }

  at::Tensor mix(const MixInput& in) override {
    const at::Tensor k = in.project.keys(), v = in.project.values();
    return ops::softmax_attention(in.project.queries(), shortened(key_proj_, k, in.mask),
                                  shortened(value_proj_, v, in.mask));
  }

  // What the keys weigh in the output: rows need not be distributions.
  at::Tensor weights(const MixInput& in) override {
    const at::Tensor k = in.project.keys();
    const at::Tensor rows =
        ops::softmax_attention_weights(in.project.queries(), shortened(key_proj_, k, in.mask));
    const at::Tensor all = rows.matmul(value_proj_.narrow(1, 0, k.size(2)).to(rows.scalar_type()));
    const std::optional<at::Tensor> visible = in.mask.visible(all.size(2), all.size(3));
    return visible ? all.masked_fill(visible->logical_not(), 0) : all;
  }

 private:
  // proj [P,n] . t [B,Hkv,S,D] -> [B,Hkv,P,D]; what padding hides counts as zeros.
  at::Tensor shortened(const at::Tensor& proj, const at::Tensor& t,
                       const AttentionMask& mask) const {
    check_length(t.size(2));
    HEDGEROW_CHECK(!mask.is_causal, kind_, ": every query sees all keys; got is_causal");
    const std::optional<at::Tensor> keep = mask.combined();
    at::Tensor rows = t;
    if (keep) {
      at::Tensor keys = *keep;
      while (keys.dim() < 4) keys = keys.unsqueeze(0);
      HEDGEROW_CHECK(keys.scalar_type() == at::kBool && keys.size(1) == 1 && keys.size(2) == 1,
                     kind_, ": takes key padding (boolean [B,1,1,S]) as its mask; got ",
                     c10::toString(keys.scalar_type()), " ", keys.sizes());
      rows = t.masked_fill(keys.transpose(2, 3).logical_not(), 0);
    }
    return proj.narrow(1, 0, t.size(2)).to(t.scalar_type()).matmul(rows);
  }

  at::Tensor key_proj_, value_proj_;
};

class WindowMixer : public BudgetMixer {
 public:
  WindowMixer(const HeadLayout& layout, const Options& options)
      : BudgetMixer("window", layout, options) {}

  at::Tensor mix(const MixInput& in) override {
    const at::Tensor q = in.project.queries(), k = in.project.keys();
    return ops::softmax_attention(q, k, in.project.values(), near(in, q.size(2), k.size(2)));
  }

  at::Tensor weights(const MixInput& in) override {
    const at::Tensor q = in.project.queries(), k = in.project.keys();
    return ops::softmax_attention_weights(q, k, near(in, q.size(2), k.size(2)));
  }

 private:
  // The mask with all but P keys around each query excluded; at the ends the window moves inwards.
  at::Tensor near(const MixInput& in, int64_t num_queries, int64_t num_keys) const {
    const int64_t width = std::min(budget_.positions, num_keys);
    const at::Tensor query = at::arange(num_queries, at::kLong).add(in.first_position).unsqueeze(1);
    const at::Tensor first = (query - width / 2).clamp(0, num_keys - width);  // [T,1]
    const at::Tensor key = at::arange(num_keys, at::kLong);
    at::Tensor keep = key.ge(first).logical_and(key.lt(first + width));
    if (const auto visible = in.mask.visible(num_queries, num_keys))
      keep = keep.logical_and(*visible);
    if (!in.mask.attn_mask || in.mask.attn_mask->scalar_type() == at::kBool) return keep;
    return at::where(keep, *in.mask.attn_mask, kMinusInf);
  }
};

template <typename M>
std::shared_ptr<Mixer> create(const HeadLayout& layout, const Options& options) {
  return std::make_shared<M>(layout, options);
}

}  // namespace

const MixerType& selected_keys_mixer_type() {
  static const MixerType type{"selected-keys",
                              "softmax over a few positions common to all queries; others dropped",
                              selection_option_specs(),
                              true,
                              create<SelectedKeysMixer>,
                              /*imitates_softmax=*/false,
                              /*one_length=*/true};
  return type;
}

const MixerType& linformer_mixer_type() {
  static const MixerType type{"linformer",
                              "keys and values projected along the sequence to a few rows",
                              key_budget_option_specs(),
                              true,
                              create<LinformerMixer>,
                              /*imitates_softmax=*/false,
                              /*one_length=*/true,
                              /*start_lr=*/3e-3};
  return type;
}

const MixerType& window_mixer_type() {
  static const MixerType type{"window",
                              "softmax over the keys nearest to each query",
                              key_budget_option_specs(),
                              false,
                              create<WindowMixer>,
                              /*imitates_softmax=*/false};
  return type;
}

}  // namespace hedgerow::nn
