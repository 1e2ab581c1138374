#include <ATen/ATen.h>
#include <ATen/TensorSubclassLikeUtils.h>

#include <algorithm>
#include <sstream>

#include "ops/entmax/entmax.h"
#include "ops/entmax_attention/entmax_attention.h"
#include "ops/partial_attention/partial_attention.h"
#include "ops/talking_heads_attention/talking_heads_attention.h"

namespace hedgerow::ops {
namespace {

// The sizes that positions, reconstruction and mean must have.
struct PartialSizes {
  c10::SymInt heads, queries, keys, selected;
};

// The last dimensions of t have the sizes `own`. Before them stands nothing, H, or 1 or H and T.
void check_form(const char* op, Named t, const std::vector<c10::SymInt>& own, const char* layouts,
                const PartialSizes& n) {
  const int64_t lead = t.tensor.dim() - static_cast<int64_t>(own.size());
  bool fits = lead >= 0 && lead <= 2;
  for (size_t i = 0; fits && i < own.size(); i++) fits = t.tensor.sym_size(lead + i) == own[i];
  if (fits && lead == 1) fits = t.tensor.sym_size(0) == n.heads;
  if (fits && lead == 2)
    fits = (t.tensor.sym_size(0) == 1 || t.tensor.sym_size(0) == n.heads) &&
           t.tensor.sym_size(1) == n.queries;
  if (fits) return;
  std::ostringstream sizes;
  sizes << "H = " << n.heads << ", T = " << n.queries << ", S = " << n.keys
        << ", P = " << n.selected;
  HEDGEROW_OP_CHECK(op, false, t.name, " must be ", layouts, " with ", sizes.str(), "; got shape ",
                    shape_text(t.tensor));
}

void check_partial(const char* op, const PartialInputs& in, const c10::SymInt& keys) {
  const at::Tensor &q = in.q, &positions = in.positions;
  HEDGEROW_OP_CHECK(op, positions.scalar_type() == at::kLong, "positions must be int64; got ",
                    dtype_text(positions.scalar_type()));
  HEDGEROW_OP_CHECK(op, positions.device() == q.device(),
                    "positions must be on the inputs' device ", q.device().str(), "; got ",
                    positions.device().str());
  HEDGEROW_OP_CHECK(op, positions.dim() >= 1,
                    "positions must have at least 1 dimension; got a scalar");
  const PartialSizes n{q.sym_size(1), q.sym_size(2), keys, positions.sym_size(-1)};
  check_form(op, {"positions", positions}, {n.selected}, "[P], [H, P], [1, T, P] or [H, T, P]", n);
  check_parameter(op, {"reconstruction", in.reconstruction}, q);
  check_form(op, {"reconstruction", in.reconstruction}, {n.keys, n.selected},
             "[S, P], [H, S, P], [1, T, S, P] or [H, T, S, P]", n);
  if (in.mean) {
    check_parameter(op, {"mean", *in.mean}, q);
    check_form(op, {"mean", *in.mean}, {n.keys}, "[S], [H, S], [1, T, S] or [H, T, S]", n);
  }
  check_position_values(op, positions, keys);
  if (in.alpha) {
    check_head_alpha(op, *in.alpha, n.heads, q);
    check_alpha_values(op, *in.alpha);
  }
  check_attn_mask(op, in.attn_mask, q.sym_size(0), n.heads, n.queries, keys, q);
  check_scale(op, in.scale);
}

}  // namespace

void check_position_values(const char* op, const at::Tensor& positions, const c10::SymInt& keys) {
  if (at::isTensorSubclassLike(positions) || positions.numel() == 0) return;
  const at::Tensor values = positions.to(at::kCPU).contiguous();
  const int64_t limit = keys.expect_int(), count = values.size(-1);
  std::vector<int64_t> row(count);
  for (int64_t start = 0; start < values.numel(); start += count) {
    std::copy_n(values.const_data_ptr<int64_t>() + start, count, row.begin());
    std::sort(row.begin(), row.end());
    for (const int64_t end : {row.front(), row.back()})
      HEDGEROW_OP_CHECK(op, end >= 0 && end < limit, "positions must be in [0, ", limit, "); got ",
                        end);
    const auto twice = std::adjacent_find(row.begin(), row.end());
    HEDGEROW_OP_CHECK(op, twice == row.end(), "positions must be distinct; got ", *twice, " twice");
  }
}

void check_partial_weights(const char* op, const PartialInputs& in) {
  check_inputs(op, {{"q", in.q}, {"k", in.k}});
  check_qk(op, {"q", in.q}, {"k", in.k});
  check_partial(op, in, in.k.sym_size(2));
}

void check_partial_attention(const char* op, const PartialInputs& in) {
  check_inputs(op, {{"q", in.q}, {"k", in.k}, {"v", in.v}});
  check_qkv(op, {"q", in.q}, {"k", in.k}, {"v", in.v});
  check_partial_weights(op, in);
  check_dropout(op, in.dropout_p, in.dropout_seed);
}

void check_partial_attention_selected(const char* op, const PartialInputs& in) {
  const Named q{"q", in.q}, k{"k_selected", in.k}, v{"v", in.v};
  check_inputs(op, {q, k, v});
  check_rank(op, q, 4, "[B, H, T, D]");
  check_rank(op, k, 4, "[B, Hkv or H, P, D]");
  check_rank(op, v, 4, "[B, Hkv, S, Dv]");
  check_same_size(op, q, k, 0, "batch");
  check_same_size(op, q, v, 0, "batch");
  check_same_size(op, q, k, 3, "width");
  check_heads(op, q, v);
  HEDGEROW_OP_CHECK(op, in.positions.dim() == 1 || in.positions.dim() == 2,
                    "positions must be [P] or [H, P]: own positions of a query need "
                    "partial_attention and all keys; got positions shape ",
                    shape_text(in.positions));
  check_partial(op, in, in.v.sym_size(2));
  const bool by_head = in.positions.dim() == 2;
  const at::Tensor& heads_of = by_head ? in.q : in.v;
  HEDGEROW_OP_CHECK(
      op, in.k.sym_size(1) == heads_of.sym_size(1) && in.k.sym_size(2) == in.positions.sym_size(-1),
      "k_selected must be ",
      by_head ? "[B, H, P, D] where positions are [H, P]"
              : "[B, Hkv, P, D] where positions are [P]",
      "; got k_selected shape ", shape_text(in.k), ", positions shape ", shape_text(in.positions),
      ", q shape ", shape_text(in.q), " and v shape ", shape_text(in.v));
  check_dropout(op, in.dropout_p, in.dropout_seed);
}

}  // namespace hedgerow::ops
