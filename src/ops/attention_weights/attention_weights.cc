#include "ops/attention_weights/attention_weights.h"

#include <torch/library.h>

#include "hedgerow/ops.h"
#include "ops/common/dispatch.h"
#include "ops/entmax/entmax.h"
#include "ops/entmax_attention/entmax_attention.h"
#include "ops/hedgehog_attention/hedgehog_attention.h"

namespace hedgerow::ops {
namespace {

constexpr const char* kOp = "attention_weights";

void refuse(const char* kind, const char* name, bool given) {
  HEDGEROW_OP_CHECK(kOp, !given, "kind \"", kind, "\" does not take ", name, "; got one");
}

}  // namespace

namespace {

// What weights over rows of scores share: kinds that take attn_mask, key_mask and scale.
void check_scores(const char* kind, const WeightsInputs& in) {
  check_inputs(kOp, {{"q", in.q}, {"k", in.k}});
  check_qkv(kOp, {"q", in.q}, {"k", in.k}, {"k", in.k});
  check_attn_mask(kOp, in.attn_mask, in.q.sym_size(0), in.q.sym_size(1), in.q.sym_size(2),
                  in.k.sym_size(2), in.q);
  check_key_mask(kOp, in.key_mask, in.k.sym_size(0), in.k.sym_size(2), in.q);
  check_scale(kOp, in.scale);
  for (const auto& [name, given] : {std::pair{"wq", in.wq.has_value()},
                                    {"wk", in.wk.has_value()},
                                    {"bq", in.bq.has_value()},
                                    {"bk", in.bk.has_value()}})
    refuse(kind, name, given);
}

}  // namespace

WeightsKind check_attention_weights(std::string_view kind, const WeightsInputs& in) {
  if (kind == "softmax") {
    check_scores("softmax", in);
    refuse("softmax", "alpha", in.alpha.has_value());
    return WeightsKind::kSoftmax;
  }
  if (kind == "entmax") {
    check_scores("entmax", in);
    HEDGEROW_OP_CHECK(kOp, in.alpha, "kind \"entmax\" needs alpha; got none");
    check_head_alpha(kOp, *in.alpha, in.q);
    check_alpha_values(kOp, *in.alpha);
    return WeightsKind::kEntmax;
  }
  HEDGEROW_OP_CHECK(kOp, kind == "hedgehog", "kind must be softmax, entmax or hedgehog; got \"",
                    std::string(kind), "\"");
  refuse("hedgehog", "attn_mask", in.attn_mask.has_value());
  refuse("hedgehog", "scale", in.scale.has_value());
  refuse("hedgehog", "alpha", in.alpha.has_value());
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
  return WeightsKind::kHedgehog;
}

at::Tensor attention_weights(std::string_view kind, const at::Tensor& q, const at::Tensor& k,
                             const OptTensor& attn_mask, bool is_causal,
                             std::optional<double> scale, const OptTensor& wq, const OptTensor& wk,
                             const OptTensor& bq, const OptTensor& bk, std::string_view variant,
                             const OptTensor& key_mask, const OptTensor& alpha) {
  static const auto op = find_op<decltype(attention_weights)>("hedgerow::attention_weights");
  return op.call(kind, q, k, attn_mask, is_causal, scale, wq, wk, bq, bk, variant, key_mask, alpha);
}

at::Tensor softmax_attention_weights(const at::Tensor& q, const at::Tensor& k,
                                     const OptTensor& attn_mask, bool is_causal,
                                     std::optional<double> scale) {
  return attention_weights("softmax", q, k, attn_mask, is_causal, scale, {}, {}, {}, {}, "exp", {},
                           {});
}

at::Tensor entmax_attention_weights(const at::Tensor& q, const at::Tensor& k,
                                    const at::Tensor& alpha, const OptTensor& attn_mask,
                                    bool is_causal, std::optional<double> scale) {
  return attention_weights("entmax", q, k, attn_mask, is_causal, scale, {}, {}, {}, {}, "exp", {},
                           alpha);
}

at::Tensor hedgehog_attention_weights(const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& wq, const at::Tensor& wk,
                                      const OptTensor& bq, const OptTensor& bk,
                                      std::string_view variant, const OptTensor& key_mask,
                                      bool is_causal) {
  return attention_weights("hedgehog", q, k, {}, is_causal, {}, wq, wk, bq, bk, variant, key_mask,
                           {});
}

}  // namespace hedgerow::ops

TORCH_LIBRARY_FRAGMENT(hedgerow, m) {
  m.def(
      "attention_weights(str kind, Tensor q, Tensor k, *, Tensor? attn_mask=None, bool "
      "is_causal=False, "
      "float? scale=None, Tensor? wq=None, Tensor? wk=None, Tensor? bq=None, Tensor? bk=None, str "
      "variant=\"exp\", "
      "Tensor? key_mask=None, Tensor? alpha=None) -> Tensor",
      {at::Tag::pt2_compliant_tag});
}
