#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "ops/common/dispatch.h"
#include "ops/common/masks.h"
#include "ops/entmax_attention/entmax_attention.h"
#include "ops/partial_attention/partial_attention.h"
#include "ops/selected_scores/selected_scores.h"
#include "ops/softmax_attention/softmax_attention.h"

namespace hedgerow::ops {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// isfinite has no Meta kernel without Python.
at::Tensor wrong_entries(const at::Tensor& t) { return t.detach().mul(0).ne(0); }

// x [..,1 or S] of at most 4 dimensions at positions [1 or H,1 or T,P], as 4 dimensions that
// broadcast to [B,H,T,P].
at::Tensor at_positions(at::Tensor x, const at::Tensor& positions) {
  while (x.dim() < 4) x = x.unsqueeze(0);
  if (x.sym_size(3) == 1) return x;
  const auto larger = [&](int64_t dim) {
    return x.sym_size(dim) == 1 ? positions.sym_size(dim - 1) : x.sym_size(dim);
  };
  const c10::SymInt batch = x.sym_size(0), heads = larger(1), queries = larger(2);
  return at::gather(
      x.expand_symint({batch, heads, queries, x.sym_size(3)}), 3,
      positions.unsqueeze(0).expand_symint({batch, heads, queries, positions.sym_size(2)}));
}

// Boolean, broadcastable to [B,H,T,P]: the query may see the selected key. Undefined without a
// mask.
at::Tensor visible_selected(const PartialInputs& in, const at::Tensor& positions,
                            const c10::SymInt& keys) {
  at::Tensor visible;
  if (in.attn_mask) {
    visible = at_positions(in.attn_mask->detach(), positions);
    if (visible.scalar_type() != at::kBool) visible = visible.ne(-INFINITY);
  }
  if (in.is_causal) {
    const c10::SymInt queries = in.q.sym_size(2);
    const at::Tensor last =  // [T,1]: the last key that the query sees
        at::ones_symint({queries, 1}, positions.options())
            .cumsum(0)
            .add(c10::Scalar(keys - queries - 1));
    const at::Tensor past = positions.le(last).unsqueeze(0);
    visible = visible.defined() ? visible.bitwise_and(past) : past;
  }
  return visible;
}

}  // namespace

at::Tensor with_heads_and_queries(const at::Tensor& t, int64_t own_dims) {
  const int64_t lead = t.dim() - own_dims;
  return lead == 2 ? t : lead == 1 ? t.unsqueeze(1) : t.unsqueeze(0).unsqueeze(0);
}

at::Tensor selected_keys(const at::Tensor& k, const at::Tensor& positions,
                         const c10::SymInt& heads) {
  if (positions.dim() == 3) return k;
  const c10::SymInt batch = k.sym_size(0), kv_heads = k.sym_size(1), width = k.sym_size(3),
                    count = positions.sym_size(-1);
  const bool by_head = positions.dim() == 2;
  // the positions of the heads that share a key head stand in one row
  const c10::SymInt groups = by_head && kv_heads != 0 ? heads / kv_heads : c10::SymInt(1);
  const c10::SymInt rows = groups * count;
  const at::Tensor index =
      positions.reshape_symint({1, by_head ? kv_heads : c10::SymInt(1), rows, 1})
          .expand_symint({batch, kv_heads, rows, width});
  return at::gather(k, 2, index).reshape_symint({batch, by_head ? heads : kv_heads, count, width});
}

at::Tensor centred_scores(const PartialInputs& in, const at::Tensor& keys) {
  const at::ScalarType dtype = accumulate_dtype(in.q.scalar_type());
  const at::Tensor positions = with_heads_and_queries(in.positions, 1);
  const bool own = in.positions.dim() == 3;
  const c10::SymInt batch = in.q.sym_size(0), heads = in.q.sym_size(1), queries = in.q.sym_size(2),
                    width = in.q.sym_size(3), key_heads = keys.sym_size(1);
  const c10::SymInt groups = key_heads == 0 ? c10::SymInt(1) : heads / key_heads;
  at::Tensor q = in.q, k = keys;
  const at::Tensor visible = visible_selected(in, positions, in.reconstruction.sym_size(-2));
  at::Tensor bad;  // a query or a key that is not finite: to be seen by what sees it alone
  if (visible.defined()) {
    const at::Tensor bad_q = wrong_entries(q), bad_k = wrong_entries(k);
    const at::Tensor bad_keys = bad_k
                                    .any(-1)  // [B,H,1,P or S]
                                    .unsqueeze(2)
                                    .expand_symint({batch, key_heads, groups, keys.sym_size(2)})
                                    .reshape_symint({batch, heads, 1, keys.sym_size(2)});
    bad = bad_q.any(-1, true).bitwise_or(own ? at_positions(bad_keys, positions) : bad_keys);
    q = q.masked_fill(bad_q, 0);
    k = k.masked_fill(bad_k, 0);
  }
  at::Tensor scores;
  if (own) {
    scores = selected_scores(q, k, in.positions);
  } else {  // [B,Hk,G T,D] by [B,Hk,D,P]
    scores = at::matmul(q.to(dtype).reshape_symint({batch, key_heads, groups * queries, width}),
                        k.to(dtype).transpose(2, 3));
  }
  const double scale =
      in.scale ? *in.scale
               : 1 / std::sqrt(static_cast<double>(width.guard_int(__FILE__, __LINE__)));
  scores = scores.reshape_symint({batch, heads, queries, positions.sym_size(2)}) * scale;
  if (in.mean)
    scores = scores - at_positions(with_heads_and_queries(in.mean->to(dtype), 1), positions);
  if (!visible.defined()) return scores;
  return scores.masked_fill(bad, kNaN).masked_fill(visible.bitwise_not(), 0);
}

namespace {

// R of its own for each query: r [1 or H,T,S,P], centred [B,H,T,P] -> [B,H,T,S]. Products of all
// rows that one R serves.
at::Tensor reconstructed_by_query(const at::Tensor& centred, const at::Tensor& r) {
  const c10::SymInt batch = centred.sym_size(0), heads = centred.sym_size(1),
                    queries = centred.sym_size(2), count = centred.sym_size(3),
                    keys = r.sym_size(2);
  if (r.sym_size(0) == heads) {  // [H T,B,P] by [H T,P,S]
    const at::Tensor rows =
        centred.permute({1, 2, 0, 3}).reshape_symint({heads * queries, batch, count});
    return at::bmm(rows, r.reshape_symint({heads * queries, keys, count}).transpose(1, 2))
        .reshape_symint({heads, queries, batch, keys})
        .permute({2, 0, 1, 3});
  }
  const at::Tensor rows =  // [T,B H,P] by [T,P,S]
      centred.permute({2, 0, 1, 3}).reshape_symint({queries, batch * heads, count});
  return at::bmm(rows, r.squeeze(0).transpose(1, 2))
      .reshape_symint({queries, batch, heads, keys})
      .permute({1, 2, 0, 3});
}

}  // namespace

at::Tensor reconstructed_scores(const at::Tensor& centred, const at::Tensor& reconstruction,
                                bool masked) {
  at::Tensor r = with_heads_and_queries(reconstruction.to(centred.scalar_type()), 2), bad;
  if (masked) {
    const at::Tensor wrong = wrong_entries(r);
    bad = wrong.any(-1);
    r = r.masked_fill(wrong, 0);
  }
  const at::Tensor scores = reconstruction.dim() < 4
                                ? at::matmul(centred, r.squeeze(1).transpose(1, 2))
                                : reconstructed_by_query(centred, r);
  return masked ? scores.masked_fill(bad, kNaN) : scores;
}

at::Tensor partial_weights_composite(const PartialInputs& in) {
  const at::ScalarType dtype = accumulate_dtype(in.q.scalar_type());
  const MaskTerms terms = split_mask(in.attn_mask, in.is_causal, in.q.size(2), in.k.size(2),
                                     in.q.options().dtype(dtype));
  const at::Tensor centred = centred_scores(in, selected_keys(in.k, in.positions, in.q.size(1)));
  MaskedScores m;
  m.scores = reconstructed_scores(centred, in.reconstruction, terms.keep.defined());
  if (in.mean) m.scores = m.scores + with_heads_and_queries(in.mean->to(dtype), 1);
  m.scores = add_bias(m.scores, terms.bias);
  m.keep = terms.keep;
  if (m.keep.defined()) {
    m.scores = m.scores.masked_fill(m.keep.logical_not(), 0);
    m.blind = m.keep.any(-1, true).logical_not();
  }
  return in.alpha ? entmax_of_scores(m, *in.alpha) : softmax_of_scores(m, false).weights;
}

}  // namespace hedgerow::ops
