#include "ops/talking_heads_attention/talking_heads_attention.h"

#include <torch/library.h>

#include <string>

#include "ops/common/struct_operator.h"
#include "ops/entmax/entmax.h"
#include "ops/entmax_attention/entmax_attention.h"

namespace hedgerow::ops {

void check_parameter(const char* op, Named t, const at::Tensor& q) {
  const at::ScalarType own = t.tensor.scalar_type(), dtype = q.scalar_type();
  HEDGEROW_OP_CHECK(op, own == dtype || (dtype == at::kBFloat16 && own == at::kFloat), t.name,
                    " must have q's dtype, or be float32 where q is bfloat16; got ", t.name, " ",
                    dtype_text(own), " and q ", dtype_text(dtype));
  HEDGEROW_OP_CHECK(op, t.tensor.device() == q.device(), t.name, " must be on the inputs' device ",
                    q.device().str(), "; got ", t.tensor.device().str());
}

namespace {

// A projection [rows, ..]: `rows` is the size of what it mixes.
void check_projection(const char* op, Named t, const c10::SymInt& rows, const char* layout,
                      const at::Tensor& q) {
  check_parameter(op, t, q);
  HEDGEROW_OP_CHECK(op, t.tensor.dim() == 2 && t.tensor.sym_size(0) == rows, t.name,
                    " must have shape ", layout, " with ", rows, " rows; got ", t.name, " shape ",
                    shape_text(t.tensor), " and q shape ", shape_text(q));
}

struct DynamicTerm {
  const char* name;
  const OptTensor& term;
  const char* projection_name;
  const OptTensor& projection;
  c10::SymInt rows;    // T or S
  const char* layout;  // of [B, rows, projection's sizes]
};

void check_dynamic_term(const char* op, const DynamicTerm& t, const at::Tensor& q) {
  if (!t.term) return;
  HEDGEROW_OP_CHECK(op, t.projection, t.name, " needs ", t.projection_name, "; got none");
  check_parameter(op, {t.name, *t.term}, q);
  check_shape(op, {t.name, *t.term},
              {q.sym_size(0), t.rows, t.projection->sym_size(0), t.projection->sym_size(1)},
              t.layout);
}

}  // namespace

HeadCounts head_counts(const TalkingHeadsInputs& in) {
  const c10::SymInt key = in.q.sym_size(1);
  const c10::SymInt softmax = in.logits_proj ? in.logits_proj->sym_size(1) : key;
  return {key, softmax, in.weights_proj ? in.weights_proj->sym_size(1) : softmax};
}

void check_mixed_weights(const char* op, const TalkingHeadsInputs& in) {
  const at::Tensor& q = in.q;
  check_inputs(op, {{"q", q}, {"k", in.k}});
  check_qk(op, {"q", q}, {"k", in.k});
  const c10::SymInt queries = q.sym_size(2), keys = in.k.sym_size(2);
  if (in.logits_proj)
    check_projection(op, {"logits_proj", *in.logits_proj}, q.sym_size(1), "[Hk, H]", q);
  const c10::SymInt heads = head_counts(in).softmax;
  if (in.weights_proj)
    check_projection(op, {"weights_proj", *in.weights_proj}, heads, "[H, Hv]", q);
  for (const DynamicTerm& term :
       {DynamicTerm{"x_logits", in.x_logits, "logits_proj", in.logits_proj, queries,
                    "[B, T, Hk, H]"},
        DynamicTerm{"m_logits", in.m_logits, "logits_proj", in.logits_proj, keys, "[B, S, Hk, H]"},
        DynamicTerm{"x_weights", in.x_weights, "weights_proj", in.weights_proj, queries,
                    "[B, T, H, Hv]"},
        DynamicTerm{"m_weights", in.m_weights, "weights_proj", in.weights_proj, keys,
                    "[B, S, H, Hv]"}})
    check_dynamic_term(op, term, q);
  if (in.alpha) {
    check_head_alpha(op, *in.alpha, heads, q);
    check_alpha_values(op, *in.alpha);
  }
  check_attn_mask(op, in.attn_mask, q.sym_size(0), heads, queries, keys, q);
  check_scale(op, in.scale);
}

void check_talking_heads_attention(const char* op, const TalkingHeadsInputs& in) {
  check_inputs(op, {{"q", in.q}, {"k", in.k}, {"v", in.v}});
  check_mixed_weights(op, in);
  check_keys_and_values(op, {"k", in.k}, {"v", in.v});
  const c10::SymInt value = head_counts(in).value, groups = in.v.sym_size(1);
  HEDGEROW_OP_CHECK(op, groups == 0 ? value == 0 : value % groups == 0, "Hv = ", value,
                    " must be a multiple of the heads of v (dimension 1); got v shape ",
                    shape_text(in.v), ", q shape ", shape_text(in.q),
                    in.weights_proj ? " and weights_proj shape " + shape_text(*in.weights_proj)
                                    : " and no weights_proj");
  check_dropout(op, in.dropout_p, in.dropout_seed);
}

void check_talking_heads_backward(const TalkingHeadsInputs& in, const at::Tensor& grad,
                                  const WantedGrads& wanted) {
  const char* op = "talking_heads_attention_backward";
  check_talking_heads_attention(op, in);
  check_inputs(op, {{"grad", grad}, {"q", in.q}});
  check_shape(op, {"grad", grad},
              {in.q.sym_size(0), head_counts(in).value, in.q.sym_size(2), in.v.sym_size(3)},
              "[B, Hv, T, Dv]");
  const auto tensors = optional_tensors(in);
  for (size_t i = 0; i < kNumOptional; i++) {
    const OptTensor& t = *tensors[i];
    HEDGEROW_OP_CHECK(op, !wanted[i] || (t && t->is_floating_point()), "wanted[", i,
                      "] must be false where the input is not a floating tensor; got ",
                      t ? dtype_text(t->scalar_type()) : std::string("none"));
  }
}

at::Tensor talking_heads_attention(const TalkingHeadsInputs& in) {
  static const StructOperator<at::Tensor(const TalkingHeadsInputs&)> op(
      "hedgerow::talking_heads_attention");
  return op(in);
}

at::Tensor talking_heads_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const TalkingHeadsOptions& options) {
  return talking_heads_attention(TalkingHeadsInputs{options, q, k, v});
}

TalkingHeadsGrads talking_heads_attention_backward(const TalkingHeadsInputs& in,
                                                   const at::Tensor& grad, WantedGrads wanted) {
  static const StructOperator<TalkingHeadsGrads(const TalkingHeadsInputs&, const at::Tensor&,
                                                WantedGrads)>
      op("hedgerow::talking_heads_attention_backward");
  return op(in, grad, wanted);
}

}  // namespace hedgerow::ops

TORCH_LIBRARY_FRAGMENT(hedgerow, m) {
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  const std::string inputs =
      "Tensor q, Tensor k, Tensor v, Tensor? logits_proj, Tensor? weights_proj, "
      "Tensor? attn_mask=None, bool is_causal=False, float? scale=None, Tensor? alpha=None, "
      "Tensor? x_logits=None, Tensor? m_logits=None, Tensor? x_weights=None, "
      "Tensor? m_weights=None, float dropout_p=0.0, int? dropout_seed=None";
  const auto def = [&](const std::string& schema) { m.def(schema.c_str(), tags); };
  def("talking_heads_attention(" + inputs + ") -> Tensor");
  def("talking_heads_attention_backward(Tensor grad, bool[8] wanted, " + inputs +
      ") -> (Tensor grad_q, Tensor grad_k, Tensor grad_v, Tensor grad_logits_proj, "
      "Tensor grad_weights_proj, Tensor grad_attn_mask, Tensor grad_alpha, Tensor grad_x_logits, "
      "Tensor grad_m_logits, Tensor grad_x_weights, Tensor grad_m_weights)");
}
