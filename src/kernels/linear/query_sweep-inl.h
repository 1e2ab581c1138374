// The first sweep of the backward (see backward-inl.h): the keys' state [v, 1]^T phi_k, and the
// gradients of the queries that read it.
#include <cstdint>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_LINEAR_QUERY_SWEEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_LINEAR_QUERY_SWEEP_INL_H_
#undef HEDGEROW_KERNELS_LINEAR_QUERY_SWEEP_INL_H_
#else
#define HEDGEROW_KERNELS_LINEAR_QUERY_SWEEP_INL_H_
#endif

#include "kernels/linear/chunk-inl.h"
#include "kernels/linear/gradients-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels::linear {
namespace HWY_NAMESPACE {

class QuerySweep {
 public:
  QuerySweep(const BackwardCall& p, const FeatureShape& s, Arena& arena)
      : p_(p),
        s_(s),
        dv_(round_up(p.value_dim, float_lanes())),
        inner_(p.value_dim + 1),
        inner_pad_(round_up(p.value_dim + 1, float_lanes())),
        group_(p.heads / p.kv_heads),
        chunk_(s, dv_, arena),
        wq_(s, arena),
        wk_(s, arena),
        grad_q_(p.dtype, s, arena),
        grad_k_(p.dtype, s, arena) {
    const int64_t panel = p.is_causal ? step_panel() : 0;
    keys_ = make_state(inner_, s.padded, panel);
    queries_t_ = make_state(inner_, s.padded, panel);
    queries_ = make_state(s.padded, dv_, panel);
    for (State* state : {&keys_, &queries_t_, &queries_}) state->data = arena.take(state->floats());
    refs_.ref = arena.take(s.padded);
    refs_.loaded = arena.take(s.padded);
    rho_ = arena.take(s.padded);
    g_ = arena.take(kChunk * inner_pad_);
    v1_ = arena.take(kChunk * inner_pad_);
    d_ = arena.take(kChunk * s.padded);
    dv_rows_ = arena.take(kChunk * dv_);
    if (!s.given) {
      yq_ = arena.take(p.queries * s.width_pad);
      yk_ = arena.take(p.keys * s.width_pad);
    }
    if (group_ > 1) {
      sum_k_ = arena.take(p.keys * grad_k_.width());
      sum_v_ = arena.take(p.keys * dv_);
    }
  }

  static int64_t floats(const BackwardCall& p, const FeatureShape& s) {
    const int64_t dv = round_up(p.value_dim, float_lanes());
    const int64_t inner = round_up(p.value_dim + 1, float_lanes());
    const int64_t panel = p.is_causal ? step_panel() : 0, slack = 64 * 16;
    int64_t n = Chunk::floats(s, dv) + 2 * MapWeights::floats(s) + slack +
                2 * MapGradient::floats(s) +
                2 * make_state(p.value_dim + 1, s.padded, panel).floats() +
                make_state(s.padded, dv, panel).floats() + 4 * s.padded +
                kChunk * (2 * inner + s.padded + dv);
    if (!s.given) n += (p.queries + p.keys) * s.width_pad;
    if (p.heads > p.kv_heads) n += p.keys * ((s.given ? s.padded : s.width_pad) + dv);
    return n;
  }

 protected:
  float map_scale() const { return s_.exact() ? kLog2e : 1.0f; }

  // The forward left the sums over all keys.
  bool has_final() const { return !p_.is_causal && p_.s_out != nullptr; }

  void load_keys_state() {
    // as the forward's, with features across and z as the last row
    std::fill_n(keys_.data, keys_.floats(), 0.0f);
    refs_.plain = true;
    const void* from = has_final() ? p_.s_out : p_.s_in;
    if (from == nullptr) return;
    const int64_t F = s_.features, Dv = p_.value_dim, index = b_ * p_.kv_heads + kv_;
    const float* s_in = static_cast<const float*>(from) + index * F * Dv;
    const float* z_in = static_cast<const float*>(has_final() ? p_.z_out : p_.z_in) + index * F;
    const float* m = static_cast<const float*>(has_final() ? p_.m_out : p_.m_in);
    if (F == s_.padded && keys_.panel == F) {
      transpose(F, Dv, s_in, Dv, keys_.data, F);
      std::copy_n(z_in, F, keys_.data + Dv * F);
    } else {
      for (int64_t f = 0; f < F; f++) {
        for (int64_t j = 0; j < Dv; j++) keys_.at(j, s_.at(f)) = s_in[f * Dv + j];
        keys_.at(Dv, s_.at(f)) = z_in[f];
      }
    }
    if (!s_.exact() || m == nullptr) return;
    seen_features();
    for (int64_t f = 0; f < F; f++) {
      float& ref = refs_.ref[s_.at(f)];
      if (ref == kUnset) continue;
      ref = m[index * F + f] * kLog2e;
      if (ref != 0) refs_.plain = false;
    }
  }

  // refs 0 where the keys' state holds something, else unset.
  void seen_features() {
    for (int64_t f = 0; f < s_.padded; f++) {
      bool seen = false;
      for (int64_t j = 0; j < inner_ && !seen; j++) seen = keys_.at(j, f) != 0;
      refs_.ref[f] = seen ? 0.0f : kUnset;
    }
  }
  void leave_plain_keys() {
    if (refs_.plain) seen_features();
    refs_.plain = false;
    plain_ = false;
  }

  // Projections, values with a 1 behind them, and the mask of keys [s, s + n).
  const uint8_t* load_key_chunk(int64_t s, int64_t n, int64_t rows, bool again) {
    const uint8_t* keep = chunk_.load_keep(p_.key_mask, b_, s, n);
    if (!s_.given) chunk_.yk = yk_ + s * s_.width_pad;
    chunk_.load_keys(p_, s_, wk_, b_, kv_, s, n, keep, again || !first_);
    const int64_t bytes = element_bytes(p_.dtype);
    for (int64_t r = 0; r < rows; r++) {
      float* to = v1_ + r * inner_pad_;
      if (r >= n || (keep && !keep[r])) {
        std::fill_n(to, inner_pad_, 0.0f);
        continue;
      }
      const int64_t at =
          b_ * p_.v.batch_stride + kv_ * p_.v.head_stride + (s + r) * p_.v.row_stride;
      load_row(p_.dtype, static_cast<const char*>(p_.v.data) + at * bytes, p_.value_dim, inner_pad_,
               1.0f, to);
      to[p_.value_dim] = 1.0f;
    }
    return keep;
  }

  // Projections, g and c, and saved maxima of queries [t, t + n).
  void load_query_chunk(int64_t t, int64_t n, int64_t rows, bool again) {
    if (!s_.given) chunk_.yq = yq_ + t * s_.width_pad;
    chunk_.load_queries(p_, s_, wq_, b_, h_, t, n, again);
    const int64_t at = (b_ * p_.heads + h_) * p_.queries + t;
    const float* inv = static_cast<const float*>(p_.inv_den) + at;
    for (int64_t r = 0; r < n; r++) {
      chunk_.inv[r] = inv[r];
      chunk_.maximum[r] = s_.exact() ? static_cast<const float*>(p_.row_exponent)[at + r] : 0.0f;
    }
    load_scaled(p_, b_, h_, t, n, rows, inv, inner_pad_, dv_rows_, g_);
  }

  bool zero_maxima(int64_t n) const {
    bool zero = true;
    for (int64_t r = 0; r < n; r++) zero &= chunk_.maximum[r] == 0;
    return zero;
  }

  void absorb(int64_t s, int64_t n) {
    const uint8_t* keep = load_key_chunk(s, n, n, false);
    if (s_.exact() && !chunk_.plain_keys(n, s_, refs_, keep)) {
      leave_plain_keys();
      if (chunk_.exact_keys(n, s_, refs_, keep)) scale_cols(keys_, chunk_.scale);
    }
    add_tokens(keys_, n, v1_, inner_pad_, chunk_.fk, s_.padded);
  }

  // Queries that see the same keys: their gradient, and without a mask their part of the second
  // sweep's states.
  void answer(int64_t t, int64_t n) {
    load_query_chunk(t, n, n, false);
    const Ahead rows = ahead(p_.dtype, p_.grad_q, b_, h_, t, s_.dim);
    if (s_.exact() && !(zero_maxima(n) && chunk_.plain_queries(n, s_, refs_, rows))) {
      leave_plain_answer();
      chunk_.exact_queries(0, n, s_, refs_, true);
    }
    read_tokens(keys_, n, g_, inner_pad_, d_, s_.padded);
    grad_q_.chunk(p_.grad_q, b_, h_, t, n, chunk_.yq, chunk_.fq, d_, chunk_.xq_rows, chunk_.xq_row);
    if (!p_.is_causal) add_query_features(n);
  }
  void leave_plain_answer() {
    if (!p_.is_causal && refs_.plain) {
      // what came so far was relative to references 0; features without keys stay 0 as well
      leave_plain_keys();
      for (int64_t f = 0; f < s_.padded; f++) {
        if (queries_seen_ && refs_.ref[f] == kUnset) refs_.ref[f] = 0.0f;
      }
      return;
    }
    leave_plain_keys();
  }

  void query_pass(int64_t t, int64_t s, int64_t n) {
    const int64_t steps = (n + kStep - 1) / kStep, n4 = steps * kStep, width = s_.padded;
    const uint8_t* keep = load_key_chunk(s, n, n4, false);
    load_query_chunk(t, n, n4, false);
    std::fill(chunk_.raises, chunk_.raises + steps, Raise::kNone);
    if (s_.exact() && !(zero_maxima(n) && chunk_.plain_keys(n, s_, refs_, keep) &&
                        chunk_.plain_queries(n, s_, refs_))) {
      leave_plain_keys();
      if (chunk_.exact_pass(n, s_, refs_, keep, true)) scale_cols(keys_, chunk_.scale);
    }
    chunk_.zero_tail(n, n4, s_);
    for (int64_t step = 0; step < steps; step++) {
      const int64_t at = step * kStep * inner_pad_;
      pair_dots(inner_pad_, g_ + at, inner_pad_, v1_ + at, inner_pad_,
                chunk_.pairs + step * kStep * kStep);
    }
    const Ahead rows[4] = {chunk_.next_q, chunk_.next_k, next_row(p_.grad_out, t + n),
                           next_row(p_.out, t + n)};
    for_step_panels(keys_, [&](auto nv, int64_t panel, int64_t col) HEDGEROW_FUNCTOR {
      query_panel<decltype(nv)::value>(steps, keys_.panel_data(panel), col, width,
                                       panel < 4 ? rows[panel] : Ahead());
    });
    grad_q_.chunk(p_.grad_q, b_, h_, t, n, chunk_.yq, chunk_.fq, d_, chunk_.xq_rows, chunk_.xq_row);
  }

  template <int NV>
  HWY_NOINLINE void query_panel(int64_t steps, float* state, int64_t col, int64_t width,
                                const Ahead next) {
    for (int64_t step = 0; step < steps; step++) {
      const int64_t r = step * kStep;
      for (int64_t i = 0; i < kStep; i++) next.fetch(r + i);
      const float *g = g_ + r * inner_pad_, *v1 = v1_ + r * inner_pad_;
      if (chunk_.raises[step] == Raise::kStep) {
        scale_panel_cols(inner_, state, keys_.panel, NV, chunk_.scale + r * width + col);
      }
      if (chunk_.raises[step] != Raise::kTokens) {
        step_panel_tokens<NV, false>(inner_, state, keys_.panel, g, inner_pad_, v1, inner_pad_,
                                     chunk_.fk + r * width + col, width, chunk_.pairs + r * kStep,
                                     nullptr, d_ + r * width + col, width);
        continue;
      }
      for (int64_t i = 0; i < kStep; i++) {
        const int64_t at = (r + i) * width + col;
        token_panel<NV, Scale::kColumns>(inner_, state, keys_.panel, chunk_.scale + at,
                                         g + i * inner_pad_, v1 + i * inner_pad_, chunk_.fk + at,
                                         1.0f, d_ + at);
      }
    }
  }

  Ahead next_row(const ConstTensor& x, int64_t t) const {
    return ahead(p_.dtype, x, b_, h_, t, p_.value_dim);
  }

  void add_query_features(int64_t n) {
    queries_seen_ = true;
    add_tokens(queries_, n, chunk_.fq, s_.padded, g_, inner_pad_);
    const int64_t last = p_.value_dim * queries_t_.panel;
    add_weighted_rows(n, s_.padded, chunk_.fq, s_.padded, g_ + p_.value_dim, inner_pad_,
                      queries_t_.data + last);
  }

  const BackwardCall& p_;
  const FeatureShape& s_;
  int64_t dv_, inner_, inner_pad_, group_;
  int64_t b_ = 0, h_ = 0, kv_ = 0;
  bool first_ = true, last_ = true, plain_ = true, queries_seen_ = false;
  Chunk chunk_;
  MapWeights wq_, wk_;
  MapGradient grad_q_, grad_k_;
  State keys_, queries_t_, queries_;
  References refs_;
  float *rho_, *g_, *v1_, *d_, *dv_rows_;
  float *yq_ = nullptr, *yk_ = nullptr, *sum_k_ = nullptr, *sum_v_ = nullptr;
  uint8_t with_keys_[kChunk];
};

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels::linear
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_LINEAR_QUERY_SWEEP_INL_H_
