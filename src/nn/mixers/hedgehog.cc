#include "nn/mixers/hedgehog.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <numbers>

#include "hedgerow/error.h"
#include "hedgerow/ops.h"
#include "nn/mixers/hedgehog_log.h"
#include "nn/mixers/masked_rows.h"

namespace hedgerow::nn {
namespace {

// Of a map. Beyond it a token's features and the running sums outweigh every model.
constexpr int64_t kMostWidth = int64_t{1} << 16;

const std::vector<OptionSpec>& option_specs() {
  static const std::vector<OptionSpec> specs = {
      // softmax distilled closer than exp in trials on MiniLM, at every length.
      {"map",
       std::string("softmax"),
       "feature map",
       {"exp", "softmax", "softmax_joint", "elu", "relu", "taylor", "exp_half", "performer",
        "cosformer"}},
      {"width",
       int64_t{0},
       "width E of the map before its non-linearity; 0: the head's width times expansion",
       {}},
      {"expansion", int64_t{1}, "width of the map as a multiple of the head's", {}},
      {"bias", false, "a bias in the map (relu always has one)", {}},
      {"seed",
       int64_t{0},
       "seed of performer's projection and of columns beyond the head's width",
       {}},
      {"max_length", int64_t{512}, "positions that cosformer's weighting spans", {}},
  };
  return specs;
}

// [heads,D,E]: ones on the diagonal. Columns beyond D are random directions of length about 1:
// zeros would receive equal gradients and stay one and the same feature.
at::Tensor identity_map(int64_t heads, int64_t dim, int64_t width, int64_t seed) {
  at::Tensor map = at::eye(dim, width).expand({heads, dim, width}).clone();
  if (width <= dim) return map;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  map.narrow(2, dim, width - dim)
      .copy_(at::randn({heads, dim, width - dim}, generator, at::kDouble) /
             std::sqrt(static_cast<double>(dim)));
  return map;
}

// [heads,D,E]: columns orthogonal in blocks of D, each as long as a normal vector of D entries
// (Choromanski et al., "Rethinking attention with performers", 2021, section 2.4).
at::Tensor orthogonal_map(int64_t heads, int64_t dim, int64_t width, int64_t seed) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const int64_t blocks = (width + dim - 1) / dim;
  const at::Tensor normal = at::randn({heads, blocks, dim, dim}, generator, at::kDouble);
  const auto [q, r] = at::linalg_qr(normal);
  // Householder's signs favour some directions; those of R's diagonal make Q uniform.
  const at::Tensor signs = r.diagonal(0, -2, -1).sgn().unsqueeze(-2);  // [h,blocks,1,D]
  const at::Tensor columns = (q * signs).transpose(1, 2);              // [h,D,blocks,D]
  const at::Tensor lengths =
      at::randn({heads, dim, width}, generator, at::kDouble).norm(2, 1, true);
  return (columns.reshape({heads, dim, blocks * dim}).narrow(2, 0, width) * lengths).to(at::kFloat);
}

class HedgehogMixer : public Mixer {
 public:
  HedgehogMixer(const HeadLayout& layout, const Options& options);

  std::string kind() const override { return "hedgehog"; }
  const Options& options() const override { return options_; }
  const HeadLayout& layout() const override { return layout_; }
  at::Tensor mix(const MixInput& in) override;
  at::Tensor weights(const MixInput& in) override;
  at::Tensor log_weights(const MixInput& in) override;

 private:
  bool is_cosformer() const { return map_ == "cosformer"; }
  // Operators call cosformer's features relu; its weighting by position is done here.
  std::string variant() const { return is_cosformer() ? "relu" : map_; }
  // taylor and performer estimate exp(q.k / sqrt(D)), so both sides take D^(1/4).
  at::Tensor scaled(const at::Tensor& x) const;
  at::Tensor queries(const MixInput& in) const { return scaled(in.project.queries()); }
  at::Tensor keys(const MixInput& in) const { return scaled(in.project.keys()); }
  at::Tensor cosformer_features(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b,
                                int64_t first_position) const;

  HeadLayout layout_;
  Options options_;
  std::string map_;
  at::Tensor wq_, wk_, bq_, bk_;
};

std::optional<at::Tensor> optional(const at::Tensor& t) {
  return t.defined() ? std::optional<at::Tensor>(t) : std::nullopt;
}

// What linear attention can leave out: keys, for all queries and heads alike.
std::optional<at::Tensor> key_mask_of(const AttentionMask& mask) {
  if (!mask.attn_mask) return mask.key_mask;
  at::Tensor keep = *mask.attn_mask;
  while (keep.dim() < 4) keep = keep.unsqueeze(0);
  HEDGEROW_CHECK(keep.scalar_type() == at::kBool && keep.size(1) == 1 && keep.size(2) == 1,
                 "hedgehog: linear attention takes key padding (boolean [B,1,1,S]) and is_causal, "
                 "not an attn_mask that differs by query or head or is added to scores; got ",
                 c10::toString(mask.attn_mask->scalar_type()), " ", mask.attn_mask->sizes());
  keep = keep.squeeze(2).squeeze(1);  // [B,S]
  return mask.key_mask ? mask.key_mask->logical_and(keep) : keep;
}

HedgehogMixer::HedgehogMixer(const HeadLayout& layout, const Options& given)
    : layout_(layout), map_(given.get_string("map")) {
  std::map<std::string, OptionValue> values = given.values();
  if (map_ == "relu") values["bias"] = true;
  options_ = Options("hedgehog", option_specs(), values);
  const int64_t dim = layout.head_dim;
  const int64_t asked = options_.get_int("width");
  HEDGEROW_CHECK(asked >= 0 && asked <= kMostWidth, "hedgehog: width must be in [0, ", kMostWidth,
                 "]; got ", asked);
  const int64_t expansion = options_.get_int("expansion");
  const int64_t most = kMostWidth / std::max<int64_t>(dim, 1);
  HEDGEROW_CHECK(expansion >= 1 && expansion <= most, "hedgehog: expansion must be in [1, ", most,
                 "]; got ", expansion);
  HEDGEROW_CHECK(options_.get_int("max_length") > 0, "hedgehog: max_length must be positive; got ",
                 options_.get_int("max_length"));
  check_one_head_count("hedgehog", layout);
  const int64_t width = asked == 0 ? dim * expansion : asked;
  if (map_ == "performer") {
    // One projection for both sides: the estimate of exp(q.k) rests on it.
    const at::Tensor w = orthogonal_map(layout.kv_heads, dim, width, options_.get_int("seed"));
    wk_ = register_buffer("wk", w);
    wq_ = register_buffer("wq", w.repeat_interleave(layout.heads / layout.kv_heads, 0));
  } else {
    // Queries and keys start alike, as with the identity.
    wk_ = register_parameter("wk",
                             identity_map(layout.kv_heads, dim, width, options_.get_int("seed")));
    wq_ =
        register_parameter("wq", wk_.detach().repeat_interleave(layout.heads / layout.kv_heads, 0));
  }
  if (options_.get_bool("bias")) {
    bq_ = register_parameter("bq", at::zeros({layout.heads, width}));
    bk_ = register_parameter("bk", at::zeros({layout.kv_heads, width}));
  }
}

at::Tensor HedgehogMixer::scaled(const at::Tensor& x) const {
  if (map_ != "taylor" && map_ != "performer") return x;
  return x / std::pow(static_cast<double>(layout_.head_dim), 0.25);
}

// [B,H,N,2E]: relu(x W + b) times the cosine and the sine of the position's angle.
at::Tensor HedgehogMixer::cosformer_features(const at::Tensor& x, const at::Tensor& w,
                                             const at::Tensor& b, int64_t first_position) const {
  const int64_t max_length = options_.get_int("max_length"), length = x.size(2);
  HEDGEROW_CHECK(first_position + length <= max_length, "hedgehog: cosformer spans ", max_length,
                 " positions (option max_length); got ", first_position + length);
  const at::Tensor features = ops::hedgehog_features(x, w, optional(b), "relu");
  const at::Tensor angle =
      at::arange(first_position, first_position + length, features.options().requires_grad(false))
          .mul_(std::numbers::pi / 2 / static_cast<double>(max_length))
          .unsqueeze(1);  // [N,1]
  return at::cat({features * angle.cos(), features * angle.sin()}, -1);
}

// Causal queries are the last of the keys' positions.
int64_t first_position(const MixInput& in, const at::Tensor& q, const at::Tensor& k) {
  return in.first_position + (in.mask.is_causal ? std::max<int64_t>(k.size(2) - q.size(2), 0) : 0);
}

at::Tensor HedgehogMixer::mix(const MixInput& in) {
  const std::optional<at::Tensor> key_mask = key_mask_of(in.mask);
  const at::Tensor q = queries(in), k = keys(in), v = in.project.values();
  if (is_cosformer()) {
    const int64_t first = first_position(in, q, k);
    return ops::linear_attention(cosformer_features(q, wq_, bq_, first),
                                 cosformer_features(k, wk_, bk_, 0), v, key_mask,
                                 in.mask.is_causal);
  }
  return ops::hedgehog_attention(q, k, v, wq_, wk_, optional(bq_), optional(bk_), variant(),
                                 key_mask, in.mask.is_causal);
}

at::Tensor HedgehogMixer::weights(const MixInput& in) {
  const std::optional<at::Tensor> key_mask = key_mask_of(in.mask);
  const at::Tensor q = queries(in), k = keys(in);
  if (!is_cosformer()) {
    return ops::hedgehog_attention_weights(q, k, wq_, wk_, optional(bq_), optional(bk_), variant(),
                                           key_mask, in.mask.is_causal);
  }
  const int64_t first = first_position(in, q, k);
  at::Tensor products =
      grouped_matmul(cosformer_features(q, wq_, bq_, first), cosformer_features(k, wk_, bk_, 0));
  if (const auto visible = in.mask.visible(q.size(2), k.size(2))) {
    products = products.masked_fill(visible->logical_not(), 0);
  }
  const at::Tensor sums = products.sum(-1, /*keepdim=*/true);
  return products / sums.masked_fill(sums == 0, 1);
}

at::Tensor HedgehogMixer::log_weights(const MixInput& in) {
  AttentionMask mask = in.mask;
  mask.key_mask = key_mask_of(in.mask);
  mask.attn_mask.reset();
  const at::Tensor q = queries(in), k = keys(in);
  const std::optional<at::Tensor> visible = mask.visible(q.size(2), k.size(2));
  if (is_cosformer()) {
    const int64_t first = first_position(in, q, k);
    const at::Tensor p =
        grouped_matmul(cosformer_features(q, wq_, bq_, first), cosformer_features(k, wk_, bk_, 0));
    return log_normalise(log_with_floor(p, visible), visible);
  }
  const auto project = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
    const at::Tensor y = at::matmul(x, w);  // [B,H,N,D] x [H,D,E]
    return b.defined() ? y + b.unsqueeze(1) : y;
  };
  const at::Tensor yq = project(q, wq_, bq_), yk = project(k, wk_, bk_);
  if (map_ == "relu") {
    const at::Tensor p = grouped_matmul(yq.relu(), yk.relu());
    return log_normalise(log_with_floor(p, visible), visible);
  }
  if (map_ == "taylor") {
    const at::Tensor dot = grouped_matmul(yq, yk);  // 1 + dot + dot^2 / 2 >= 1/2
    return log_normalise((dot + dot.square() / 2).log1p(), visible);
  }
  return log_normalised_dot_exp(hedgehog_log_features(map_, yq, q),
                                hedgehog_log_features(map_, yk, k), visible);
}

}  // namespace

const MixerType& hedgehog_mixer_type() {
  static const MixerType type{
      "hedgehog",
      "Hedgehog linear attention: learned feature maps, running sums over keys",
      option_specs(),
      true,
      [](const HeadLayout& layout, const Options& options) -> std::shared_ptr<Mixer> {
        return std::make_shared<HedgehogMixer>(layout, options);
      },
      /*imitates_softmax=*/true,
      /*one_length=*/false,
      /*start_lr=*/3e-2,
      /*thorough_options=*/{{"expansion", int64_t{2}}}};
  return type;
}

}  // namespace hedgerow::nn
