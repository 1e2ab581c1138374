#include "ops/attention_weights/attention_weights.h"

#include <torch/library.h>

#include "hedgerow/ops.h"
#include "ops/common/struct_operator.h"
#include "ops/entmax/entmax.h"
#include "ops/entmax_attention/entmax_attention.h"
#include "ops/hedgehog_attention/hedgehog_attention.h"

namespace hedgerow::ops {
namespace {

constexpr const char* kOp = "attention_weights";

WeightsKind parse_kind(const std::string& kind) {
  if (kind == "softmax") return WeightsKind::kSoftmax;
  if (kind == "entmax") return WeightsKind::kEntmax;
  if (kind == "talking_heads") return WeightsKind::kTalkingHeads;
  if (kind == "partial") return WeightsKind::kPartial;
  HEDGEROW_OP_CHECK(kOp, kind == "hedgehog",
                    "kind must be softmax, entmax, talking_heads, partial or hedgehog; got \"",
                    kind, "\"");
  return WeightsKind::kHedgehog;
}

// Optional arguments, and the kinds that take them, as bits.
void refuse_what_is_not_taken(WeightsKind kind, const WeightsInputs& in) {
  const auto bit = [](WeightsKind k) { return 1u << static_cast<unsigned>(k); };
  const unsigned entmax = bit(WeightsKind::kEntmax), talking = bit(WeightsKind::kTalkingHeads),
                 partial = bit(WeightsKind::kPartial), hedgehog = bit(WeightsKind::kHedgehog),
                 scores = bit(WeightsKind::kSoftmax) | entmax | talking | partial;
  struct Argument {
    const char* name;
    bool given;
    unsigned kinds;
  };
  for (const auto& [name, given, kinds] : {
           Argument{"attn_mask", in.attn_mask.has_value(), scores},
           Argument{"scale", in.scale.has_value(), scores},
           Argument{"alpha", in.alpha.has_value(), entmax | talking | partial},
           Argument{"wq", in.wq.has_value(), hedgehog},
           Argument{"wk", in.wk.has_value(), hedgehog},
           Argument{"bq", in.bq.has_value(), hedgehog},
           Argument{"bk", in.bk.has_value(), hedgehog},
           Argument{"logits_proj", in.logits_proj.has_value(), talking},
           Argument{"weights_proj", in.weights_proj.has_value(), talking},
           Argument{"x_logits", in.x_logits.has_value(), talking},
           Argument{"m_logits", in.m_logits.has_value(), talking},
           Argument{"x_weights", in.x_weights.has_value(), talking},
           Argument{"m_weights", in.m_weights.has_value(), talking},
           Argument{"positions", in.positions.has_value(), partial},
           Argument{"reconstruction", in.reconstruction.has_value(), partial},
           Argument{"mean", in.mean.has_value(), partial},
       })
    HEDGEROW_OP_CHECK(kOp, !given || (kinds & bit(kind)) != 0, "kind \"", in.kind,
                      "\" does not take ", name, "; got one");
}

// Weights of rows of scores as they are.
void check_scores(const WeightsInputs& in) {
  check_inputs(kOp, {{"q", in.q}, {"k", in.k}});
  check_qk(kOp, {"q", in.q}, {"k", in.k});
  check_attn_mask(kOp, in.attn_mask, in.q.sym_size(0), in.q.sym_size(1), in.q.sym_size(2),
                  in.k.sym_size(2), in.q);
  check_scale(kOp, in.scale);
}

void check_hedgehog(const WeightsInputs& in) {
  HEDGEROW_OP_CHECK(kOp, in.wq && in.wk, "kind \"hedgehog\" needs wq and wk; got ",
                    in.wq   ? "wq"
                    : in.wk ? "wk"
                            : "none");
  check_hedgehog_attention(kOp, {in.q,
                                 in.k,
                                 in.k,
                                 *in.wq,
                                 *in.wk,
                                 in.bq,
                                 in.bk,
                                 in.variant,
                                 in.key_mask,
                                 in.is_causal,
                                 {},
                                 {},
                                 {}});
}

}  // namespace

WeightsKind check_attention_weights(const WeightsInputs& in) {
  const WeightsKind kind = parse_kind(in.kind);
  refuse_what_is_not_taken(kind, in);
  switch (kind) {
    case WeightsKind::kSoftmax:
      check_scores(in);
      break;
    case WeightsKind::kEntmax:
      check_scores(in);
      HEDGEROW_OP_CHECK(kOp, in.alpha, "kind \"entmax\" needs alpha; got none");
      check_head_alpha(kOp, *in.alpha, in.q.sym_size(1), in.q);
      check_alpha_values(kOp, *in.alpha);
      break;
    case WeightsKind::kTalkingHeads:
      check_mixed_weights(kOp, talking_heads_inputs(in, in.attn_mask));
      break;
    case WeightsKind::kPartial:
      HEDGEROW_OP_CHECK(kOp, in.positions && in.reconstruction,
                        "kind \"partial\" needs positions and reconstruction; got ",
                        in.positions        ? "positions"
                        : in.reconstruction ? "reconstruction"
                                            : "none");
      check_partial_weights(kOp, partial_inputs(in, in.attn_mask));
      break;
    case WeightsKind::kHedgehog:
      check_hedgehog(in);
      break;
  }
  check_key_mask(kOp, in.key_mask, in.k.sym_size(0), in.k.sym_size(2), in.q);
  return kind;
}

TalkingHeadsInputs talking_heads_inputs(const WeightsInputs& in, const OptTensor& mask) {
  return {{.logits_proj = in.logits_proj,
           .weights_proj = in.weights_proj,
           .attn_mask = mask,
           .is_causal = in.is_causal,
           .scale = in.scale,
           .alpha = in.alpha,
           .x_logits = in.x_logits,
           .m_logits = in.m_logits,
           .x_weights = in.x_weights,
           .m_weights = in.m_weights},
          in.q,
          in.k,
          {}};
}

PartialInputs partial_inputs(const WeightsInputs& in, const OptTensor& mask) {
  return {{.mean = in.mean,
           .attn_mask = mask,
           .is_causal = in.is_causal,
           .scale = in.scale,
           .alpha = in.alpha},
          in.q,
          in.k,
          {},
          *in.positions,
          *in.reconstruction};
}

at::Tensor attention_weights(const WeightsInputs& in) {
  static const StructOperator<at::Tensor(const WeightsInputs&)> op("hedgerow::attention_weights");
  return op(in);
}

at::Tensor softmax_attention_weights(const at::Tensor& q, const at::Tensor& k,
                                     const OptTensor& attn_mask, bool is_causal,
                                     std::optional<double> scale) {
  return attention_weights({.kind = "softmax",
                            .q = q,
                            .k = k,
                            .attn_mask = attn_mask,
                            .is_causal = is_causal,
                            .scale = scale});
}

at::Tensor entmax_attention_weights(const at::Tensor& q, const at::Tensor& k,
                                    const at::Tensor& alpha, const OptTensor& attn_mask,
                                    bool is_causal, std::optional<double> scale) {
  return attention_weights({.kind = "entmax",
                            .q = q,
                            .k = k,
                            .attn_mask = attn_mask,
                            .is_causal = is_causal,
                            .scale = scale,
                            .alpha = alpha});
}

at::Tensor talking_heads_attention_weights(const at::Tensor& q, const at::Tensor& k,
                                           const TalkingHeadsOptions& options) {
  HEDGEROW_OP_CHECK(kOp, options.dropout_p == 0, "dropout_p must be 0; got ", options.dropout_p);
  return attention_weights({.kind = "talking_heads",
                            .q = q,
                            .k = k,
                            .attn_mask = options.attn_mask,
                            .is_causal = options.is_causal,
                            .scale = options.scale,
                            .alpha = options.alpha,
                            .logits_proj = options.logits_proj,
                            .weights_proj = options.weights_proj,
                            .x_logits = options.x_logits,
                            .m_logits = options.m_logits,
                            .x_weights = options.x_weights,
                            .m_weights = options.m_weights});
}

at::Tensor partial_attention_weights(const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& positions, const at::Tensor& reconstruction,
                                     const PartialOptions& options) {
  HEDGEROW_OP_CHECK(kOp, options.dropout_p == 0, "dropout_p must be 0; got ", options.dropout_p);
  return attention_weights({.kind = "partial",
                            .q = q,
                            .k = k,
                            .attn_mask = options.attn_mask,
                            .is_causal = options.is_causal,
                            .scale = options.scale,
                            .alpha = options.alpha,
                            .positions = positions,
                            .reconstruction = reconstruction,
                            .mean = options.mean});
}

at::Tensor hedgehog_attention_weights(const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& wq, const at::Tensor& wk,
                                      const OptTensor& bq, const OptTensor& bk,
                                      std::string_view variant, const OptTensor& key_mask,
                                      bool is_causal) {
  return attention_weights({.kind = "hedgehog",
                            .q = q,
                            .k = k,
                            .is_causal = is_causal,
                            .wq = wq,
                            .wk = wk,
                            .bq = bq,
                            .bk = bk,
                            .variant = std::string(variant),
                            .key_mask = key_mask});
}

}  // namespace hedgerow::ops

TORCH_LIBRARY_FRAGMENT(hedgerow, m) {
  m.def(
      "attention_weights(str kind, Tensor q, Tensor k, *, Tensor? attn_mask=None, bool "
      "is_causal=False, float? scale=None, Tensor? wq=None, Tensor? wk=None, Tensor? bq=None, "
      "Tensor? bk=None, str variant=\"exp\", Tensor? key_mask=None, Tensor? alpha=None, Tensor? "
      "logits_proj=None, Tensor? weights_proj=None, Tensor? x_logits=None, Tensor? m_logits=None, "
      "Tensor? x_weights=None, Tensor? m_weights=None, Tensor? positions=None, Tensor? "
      "reconstruction=None, Tensor? mean=None) -> Tensor",
      {at::Tag::pt2_compliant_tag});
}
