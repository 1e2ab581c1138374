// Cases of talking-heads attention, and their inputs, outputs and gradients wrapped for the
// kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "hedgerow/kernels/talking_heads.h"
#include "testing/attention_data.h"
#include "testing/random.h"

namespace hedgerow::testing_support {

// What a case has of the projections and their dynamic terms; it may be any sum of these.
enum HeadsTerms : unsigned {
  kLogitsProj = 1,
  kWeightsProj = 2,
  kXLogits = 4,
  kMLogits = 8,
  kXWeights = 16,
  kMWeights = 32,
  kBoth = kLogitsProj | kWeightsProj,
  kAll = 63,
};

struct HeadsCase {
  AttentionCase base;  // its heads are the H normalised ones; kv_heads is not used
  int64_t key_heads, key_kv_heads, value_heads, value_kv_heads;
  unsigned terms = kBoth;
  std::vector<double> alpha;  // empty: softmax; one for all heads, or one for each
};

inline std::ostream& operator<<(std::ostream& out, const HeadsCase& c) { return out << c.base; }

inline std::vector<HeadsCase> heads_cases() {
  using M = MaskForm;
  const auto base = [](const char* name, int64_t batch, int64_t heads, int64_t queries,
                       int64_t keys, int64_t width, int64_t value_width, bool causal = false,
                       M mask = M::kNone, double dropout = 0, double query_scale = 1) {
    return AttentionCase{name,  batch,       heads,  heads, queries, keys,
                         width, value_width, causal, mask,  dropout, query_scale};
  };
  return {
      {base("one", 1, 1, 1, 1, 1, 1), 1, 1, 1, 1},
      {base("paper", 1, 12, 130, 130, 64, 64), 12, 12, 12, 12},
      {base("head_counts_5_7_3", 2, 7, 70, 90, 16, 24), 5, 5, 3, 3},
      {base("heads_24", 1, 24, 40, 70, 32, 32, true), 24, 24, 24, 24},
      {base("one_head_from_three", 1, 1, 65, 65, 8, 8), 3, 3, 2, 2},
      {base("long", 1, 3, 33, 700, 32, 48), 3, 3, 3, 3},
      {base("causal", 1, 4, 200, 200, 32, 32, true), 4, 4, 4, 4},
      {base("causal_fewer_queries", 2, 4, 70, 200, 32, 32, true), 3, 3, 4, 4},
      {base("causal_more_queries", 1, 4, 200, 70, 32, 32, true), 4, 4, 4, 4},
      {base("causal_tasks", 1, 4, 400, 430, 8, 8, true), 4, 2, 4, 2},
      {base("tasks_that_see_nothing", 1, 2, 520, 130, 8, 8, true), 2, 2, 2, 2},
      {base("logits_only", 1, 6, 100, 150, 32, 32), 4, 4, 6, 6, kLogitsProj},
      {base("weights_only", 1, 6, 100, 150, 32, 32), 6, 6, 4, 4, kWeightsProj},
      {base("neither", 1, 6, 100, 150, 32, 32), 6, 2, 6, 3, 0},
      {base("grouped", 2, 5, 70, 90, 32, 40, true), 6, 2, 4, 2},
      {base("padding", 3, 4, 65, 100, 32, 32, false, M::kKeyPadding), 4, 4, 4, 4},
      {base("padding_causal_logits", 3, 4, 130, 130, 16, 16, true, M::kKeyPadding), 3, 3, 4, 4,
       kLogitsProj},
      {base("bool", 2, 4, 65, 130, 32, 32, false, M::kBool), 4, 4, 4, 4},
      {base("float", 2, 4, 65, 130, 32, 32, false, M::kFloat), 4, 4, 3, 3},
      {base("float_per_pair", 2, 4, 65, 130, 16, 16, false, M::kFloatPerPair), 4, 2, 4, 2},
      {base("float_per_head", 2, 4, 150, 130, 16, 16, true, M::kFloatPerHead), 4, 4, 4, 4},
      {base("lowest", 2, 4, 70, 100, 16, 16, false, M::kLowest), 4, 4, 4, 4},
      {base("dropout", 1, 4, 130, 130, 32, 32, false, M::kNone, 0.25), 4, 4, 4, 4},
      {base("dropout_neither", 1, 4, 70, 130, 32, 32, true, M::kNone, 0.25), 4, 4, 4, 4, 0},
      {base("sharp", 1, 4, 70, 400, 64, 64, false, M::kNone, 0, 30), 4, 4, 4, 4},
      {base("sharp_weights_only", 1, 4, 70, 400, 64, 64, false, M::kNone, 0, 30), 4, 4, 4, 4,
       kWeightsProj},
      {base("x_logits", 2, 4, 70, 90, 16, 16), 3, 3, 4, 4, kBoth | kXLogits},
      {base("m_logits", 2, 4, 70, 90, 16, 16, true), 3, 3, 4, 4, kBoth | kMLogits},
      {base("x_weights", 2, 4, 70, 90, 16, 16, true), 3, 3, 5, 5, kBoth | kXWeights},
      {base("m_weights", 2, 4, 70, 90, 16, 16), 3, 3, 5, 5, kBoth | kMWeights},
      {base("dynamic", 2, 7, 130, 150, 16, 16, true, M::kBool, 0.1), 5, 5, 3, 3, kAll},
      {base("entmax_softmax", 1, 4, 65, 130, 32, 32), 4, 4, 4, 4, kBoth, {1.0}},
      {base("entmax", 2, 4, 65, 130, 32, 32, true), 3, 3, 4, 4, kBoth, {1.5}},
      {base("entmax_per_head", 2, 3, 65, 130, 16, 16, false, M::kBool),
       4,
       4,
       4,
       4,
       kBoth,
       {1.0, 1.25, 1.5}},
      {base("entmax_dynamic", 1, 3, 65, 100, 16, 16, true, M::kKeyPadding, 0.2),
       4,
       2,
       4,
       2,
       kAll,
       {1.2, 1.4, 1.5}},
      {base("no_batch", 0, 2, 5, 5, 8, 8), 2, 2, 2, 2, kAll},
      {base("no_queries", 2, 2, 0, 5, 8, 8), 2, 2, 2, 2, kAll},
      {base("no_keys", 2, 2, 5, 0, 8, 8), 2, 2, 2, 2, kAll},
      {base("no_width", 2, 2, 5, 5, 0, 8), 2, 2, 2, 2, kAll},
      {base("no_value_width", 2, 2, 5, 5, 8, 0), 2, 2, 2, 2, kAll},
  };
}

// A projection or dynamic term, and room for its gradient; empty where the case has none.
struct HostTerm {
  std::vector<float> value, grad;
  HostTerm(bool there, int64_t size, uint64_t seed, double scale) {
    if (!there) return;
    value.resize(size);
    for (int64_t i = 0; i < size; i++) value[i] = static_cast<float>(scale * normal(seed, i));
    grad.assign(size, std::numeric_limits<float>::quiet_NaN());
    there_ = true;
  }
  const void* data() const { return there_ ? static_cast<const void*>(value.data()) : nullptr; }
  void* grad_data() { return there_ ? static_cast<void*>(grad.data()) : nullptr; }

 private:
  bool there_ = false;
};

struct HeadsData {
  HeadsCase c;
  HostMask mask;
  HostTensor q, k, v, out, grad_out, dq, dk, dv;
  HostTerm logits, weights, x_logits, m_logits, x_weights, m_weights;
  std::vector<double> dalpha;

  explicit HeadsData(const HeadsCase& which, kernels::DType dtype = kernels::DType::kFloat32,
                     bool rows_first = false)
      : c(which),
        mask(c.base),
        q(dtype, c.base.batch, c.key_heads, c.base.queries, c.base.width, rows_first),
        k(dtype, c.base.batch, c.key_kv_heads, c.base.keys, c.base.width, rows_first),
        v(dtype, c.base.batch, c.value_kv_heads, c.base.keys, c.base.value_width, rows_first),
        out(dtype, c.base.batch, c.value_heads, c.base.queries, c.base.value_width, rows_first),
        grad_out(out),
        dq(q),
        dk(k),
        dv(v),
        logits(c.terms & kLogitsProj, logits_size(), 11, scale(c.key_heads)),
        weights(c.terms & kWeightsProj, weights_size(), 12, scale(c.base.heads)),
        x_logits(c.terms & kXLogits, c.base.batch * c.base.queries * logits_size(), 13,
                 0.3 * scale(c.key_heads)),
        m_logits(c.terms & kMLogits, c.base.batch * c.base.keys * logits_size(), 14,
                 0.3 * scale(c.key_heads)),
        x_weights(c.terms & kXWeights, c.base.batch * c.base.queries * weights_size(), 15,
                  0.3 * scale(c.base.heads)),
        m_weights(c.terms & kMWeights, c.base.batch * c.base.keys * weights_size(), 16,
                  0.3 * scale(c.base.heads)),
        dalpha(c.base.heads, std::nan("")),
        dtype_(dtype) {
    q.randomise(1, c.base.query_scale);
    k.randomise(2);
    v.randomise(3);
    grad_out.randomise(4);
  }

  kernels::TalkingHeadsParams params() const {
    kernels::TalkingHeadsParams p;
    p.dtype = dtype_;
    p.batch = c.base.batch;
    p.key_heads = c.key_heads;
    p.key_kv_heads = c.key_kv_heads;
    p.heads = c.base.heads;
    p.value_heads = c.value_heads;
    p.value_kv_heads = c.value_kv_heads;
    p.queries = c.base.queries;
    p.keys = c.base.keys;
    p.width = c.base.width;
    p.value_width = c.base.value_width;
    p.q = q.view();
    p.k = k.view();
    p.v = v.view();
    p.logits_proj = logits.data();
    p.weights_proj = weights.data();
    p.x_logits = x_logits.data();
    p.m_logits = m_logits.data();
    p.x_weights = x_weights.data();
    p.m_weights = m_weights.data();
    p.alpha = c.alpha.empty() ? nullptr : c.alpha.data();
    p.alpha_stride = c.alpha.size() > 1 ? 1 : 0;
    p.mask = mask.view();
    p.is_causal = c.base.is_causal;
    p.scale = scale(c.base.width);
    p.dropout_p = c.base.dropout_p;
    p.dropout_seed = 77;
    return p;
  }
  kernels::TalkingHeadsGradients gradients() {
    kernels::TalkingHeadsGradients g;
    g.grad_out = grad_out.view();
    g.dq = dq.mut();
    g.dk = dk.mut();
    g.dv = dv.mut();
    g.dlogits_proj = logits.grad_data();
    g.dweights_proj = weights.grad_data();
    g.dx_logits = x_logits.grad_data();
    g.dm_logits = m_logits.grad_data();
    g.dx_weights = x_weights.grad_data();
    g.dm_weights = m_weights.grad_data();
    g.dalpha = c.alpha.empty() ? nullptr : dalpha.data();
    g.dmask = mask.gradient();
    return g;
  }
  void run() {
    kernels::talking_heads_forward(params(), out.mut());
    kernels::talking_heads_backward(params(), gradients());
  }
  void run_reference() {
    kernels::talking_heads_forward_reference(params(), out.mut());
    kernels::talking_heads_backward_reference(params(), gradients());
  }

 private:
  static double scale(int64_t width) {
    return width > 0 ? 1.0 / std::sqrt(static_cast<double>(width)) : 1.0;
  }
  int64_t logits_size() const { return c.key_heads * c.base.heads; }
  int64_t weights_size() const { return c.base.heads * c.value_heads; }

  kernels::DType dtype_;
};

}  // namespace hedgerow::testing_support
