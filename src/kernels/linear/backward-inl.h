// The backward of one key/value head with its query heads. With g_t = go_t / den_t,
// c_t = -(go_t . o_t) / den_t, A_ts = phi_q_t . phi_k_s and B_ts = g_t . v_s + c_t (s visible to
// t):
//   dphi_q_t = sum_s B_ts phi_k_s    dphi_k_s = sum_t B_ts phi_q_t    dv_s = sum_t A_ts g_t
// A first sweep goes forward with the keys' state [v, 1]^T phi_k (query side), a second one in
// reverse with the queries' states [g, c]^T phi_q and phi_q^T g (key side).
//
// exp: the first sweep's features are relative to references as in the forward and to the saved
// maximum M of each query; in the second, key features are 2^(y + rho) and query features
// 2^(y - M - rho), rho a reference per feature raised lazily by the queries, from the end. M covers
// every key that its query sees, so y_k + rho stays below the slack of the references.
#include <cstdint>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_LINEAR_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_LINEAR_BACKWARD_INL_H_
#undef HEDGEROW_KERNELS_LINEAR_BACKWARD_INL_H_
#else
#define HEDGEROW_KERNELS_LINEAR_BACKWARD_INL_H_
#endif

#include "kernels/linear/query_sweep-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels::linear {
namespace HWY_NAMESPACE {

class HeadBackward : private QuerySweep {
 public:
  using QuerySweep::floats;
  using QuerySweep::QuerySweep;

  // dwq [group][...] and dwk are this task's partial sums (see MapGradient).
  void run(int64_t b, int64_t kv, float* dwq, float* dwk) {
    b_ = b;
    kv_ = kv;
    if (!s_.given) {
      wk_.pack(p_.dtype, p_.wk, p_.bk, kv, s_, map_scale());
      grad_k_.pack(p_.wk, kv, dwk);
    }
    for (int64_t g = 0; g < group_; g++) {
      h_ = kv * group_ + g;
      first_ = g == 0;
      last_ = g == group_ - 1;
      if (!s_.given) {
        wq_.pack(p_.dtype, p_.wq, p_.bq, h_, s_, map_scale());
        grad_q_.pack(p_.wq, h_, dwq + g * MapGradient::sums(s_));
      }
      query_head();
    }
  }

 private:
  void query_head() {
    const int64_t T = p_.queries, S = p_.keys, offset = S - T;
    const int64_t lone_keys = p_.is_causal ? std::max<int64_t>(offset, 0) : S;
    const int64_t lone_queries = p_.is_causal ? std::clamp<int64_t>(-offset, 0, T) : T;
    load_keys_state();
    plain_ = true;
    for (int64_t s = 0; s < lone_keys && !has_final(); s += kChunk) {
      absorb(s, std::min(kChunk, lone_keys - s));
    }
    if (!p_.is_causal) begin_fixed();
    for (int64_t t = 0; t < lone_queries; t += kChunk) {
      answer(t, std::min(kChunk, lone_queries - t));
    }
    if (p_.is_causal) {
      const int64_t aligned = T - lone_queries;
      for (int64_t i = 0; i < aligned; i += kChunk) {
        query_pass(lone_queries + i, lone_keys + i, std::min(kChunk, aligned - i));
      }
      begin_reverse();
      for (int64_t i = (aligned - 1) / kChunk * kChunk; i >= 0 && aligned > 0; i -= kChunk) {
        key_pass(lone_queries + i, lone_keys + i, std::min(kChunk, aligned - i));
      }
    } else {
      end_fixed();
    }
    for (int64_t s = 0; s < lone_keys; s += kChunk) {
      read_keys(s, std::min(kChunk, lone_keys - s));
    }
    if (p_.grad_s_in || p_.grad_z_in) {
      for (int64_t t = 0; p_.is_causal && t < lone_queries; t += kChunk) {
        add_queries(t, std::min(kChunk, lone_queries - t));
      }
      store_state_gradients();
    }
  }

  // ---- second sweep: the queries' states -------------------------------------------------------

  // Without a mask every query sees every key: rho is minus the final references.
  void begin_fixed() {
    clear_query_states();
    queries_seen_ = false;
  }
  void end_fixed() {
    for (int64_t f = 0; f < s_.padded; f++) rho_[f] = refs_.plain ? 0.0f : -refs_.ref[f];
    add_final_gradients(false);
    transpose(s_.padded, p_.value_dim, queries_.data, queries_.panel, queries_t_.data,
              queries_t_.panel);  // one panel each; z's row is there already
    plain_ = refs_.plain;
  }
  void clear_query_states() {
    std::fill_n(queries_.data, queries_.floats(), 0.0f);
    std::fill_n(queries_t_.data, queries_t_.floats(), 0.0f);
  }

  void begin_reverse() {
    clear_query_states();
    std::fill_n(rho_, s_.padded, plain_ ? 0.0f : kUnset);
    add_final_gradients(true);
  }

  // Adds the gradients of the final state, which are relative to -m_out, to the queries' states.
  // take_rho: rho becomes -m_out; otherwise they are brought to rho.
  void add_final_gradients(bool take_rho) {
    if (!first_ || (!p_.grad_s_out && !p_.grad_z_out)) return;
    const int64_t F = s_.features, Dv = p_.value_dim, index = b_ * p_.kv_heads + kv_;
    const float* gs = static_cast<const float*>(p_.grad_s_out);
    const float* gz = static_cast<const float*>(p_.grad_z_out);
    const float* m = s_.exact() ? static_cast<const float*>(p_.m_out) : nullptr;
    for (int64_t f = 0; f < F; f++) {
      const int64_t at = s_.at(f);
      const float to = m ? -m[index * F + f] * kLog2e : 0.0f;
      float by = 1.0f;
      if (take_rho) {
        if (to != 0) plain_ = false;
        rho_[at] = to;
      } else if (s_.exact() && to != rho_[at]) {
        by = std::exp2(std::min(to - rho_[at], 126.0f));
      }
      for (int64_t j = 0; j < Dv; j++) {
        const float x = gs ? by * gs[(index * F + f) * Dv + j] : 0.0f;
        queries_.at(at, j) += x;
        if (take_rho) queries_t_.at(j, at) += x;
      }
      if (gz) queries_t_.at(Dv, at) += by * gz[index * F + f];
    }
  }

  // Exponents y - M of queries in chunk_.xq; a query without keys has none.
  void reverse_exponents(int64_t n) {
    signed_exponents(n, s_, chunk_.yq, nullptr, chunk_.xq);
    for (int64_t r = 0; r < n; r++) {
      float* x = chunk_.xq + r * s_.padded;
      for (int64_t f = 0; f < s_.padded; f++) {
        x[f] = chunk_.inv[r] == 0 || x[f] == kUnset ? kUnset : x[f] - chunk_.maximum[r];
      }
      with_keys_[r] = chunk_.inv[r] != 0;
    }
  }

  // Features of aligned queries and keys relative to rho, steps from the last to the first. As
  // Chunk::exact_pass, with the queries raising rho; true if the chunk shares a raise.
  bool reverse_features(int64_t n, const uint8_t* keep) {
    const int64_t width = s_.padded;
    signed_exponents(n, s_, chunk_.yk, keep, chunk_.xk);
    reverse_exponents(n);
    auto rows = [&](int64_t from, int64_t to) {
      relative_features(to - from, s_, chunk_.xq + from * width, rho_, -1.0f, nullptr,
                        with_keys_ + from, chunk_.fq + from * width);
      relative_features(to - from, s_, chunk_.xk + from * width, rho_, 1.0f, nullptr,
                        keep ? keep + from : nullptr, chunk_.fk + from * width);
    };
    const bool raised = exceeds(n, s_, chunk_.xq, rho_);
    if (!raised || !exceeds(n, s_, chunk_.xq, rho_, kShare)) {
      if (raised) raise_references(n, s_, chunk_.xq, rho_, chunk_.scale);
      rows(0, n);
      return raised;
    }
    for (int64_t r = (n - 1) / kStep * kStep; r >= 0; r -= kStep) {
      const int64_t end = std::min<int64_t>(r + kStep, n);
      chunk_.raise_step(r, end, s_, chunk_.xq, rho_);
      if (chunk_.raises[r / kStep] != Raise::kTokens) {
        rows(r, end);
        continue;
      }
      for (int64_t i = end - 1; i >= r; i--) {
        raise_references(1, s_, chunk_.xq + i * width, rho_, chunk_.scale + i * width);
        rows(i, i + 1);
      }
    }
    return false;
  }

  void key_pass(int64_t t, int64_t s, int64_t n) {
    const int64_t steps = (n + kStep - 1) / kStep, n4 = steps * kStep, width = s_.padded;
    const uint8_t* keep = load_key_chunk(s, n, n4, true);
    load_query_chunk(t, n, n4, true);
    std::fill(chunk_.raises, chunk_.raises + steps, Raise::kNone);
    if (s_.exact()) {
      if (plain_) {
        plain_features(n, s_, chunk_.yq, chunk_.fq);
        plain_features(n, s_, chunk_.yk, chunk_.fk);
        chunk_.zero_rows(n, s_, keep);
      } else {
        if (reverse_features(n, keep)) {
          scale_rows(queries_, chunk_.scale);
          scale_cols(queries_t_, chunk_.scale);
        }
      }
    }
    chunk_.zero_tail(n, n4, s_);
    for (int64_t step = 0; step < steps; step++) {
      const int64_t at = step * kStep * inner_pad_;
      pair_dots(inner_pad_, v1_ + at, inner_pad_, g_ + at, inner_pad_,
                chunk_.pairs + step * kStep * kStep);
    }
    const Ahead rows[4] = {chunk_.next_q, chunk_.next_k, next_row(p_.grad_out, t - kChunk),
                           next_row(p_.out, t - kChunk)};
    for_step_panels(queries_t_, [&](auto nv, int64_t panel, int64_t col) HEDGEROW_FUNCTOR {
      key_panel<decltype(nv)::value>(steps, queries_t_.panel_data(panel), col, width,
                                     panel < 4 ? rows[panel] : Ahead());
    });
    for (int64_t step = 0; step < steps; step++) {
      const int64_t at = step * kStep * width;
      pair_dots(width, chunk_.fk + at, width, chunk_.fq + at, width,
                chunk_.pairs + step * kStep * kStep);
    }
    const Ahead written[2] = {ahead(p_.dtype, p_.grad_k, b_, kv_, s, s_.dim),
                              ahead(p_.dtype, p_.grad_v, b_, kv_, s, p_.value_dim)};
    for_step_panels(queries_, [&](auto nv, int64_t panel, int64_t col) HEDGEROW_FUNCTOR {
      value_panel<decltype(nv)::value>(steps, queries_.panel_data(panel), col, width,
                                       panel < 2 ? written[panel] : Ahead());
    });
    store_keys(s, n);
  }

  template <int NV>
  HWY_NOINLINE void key_panel(int64_t steps, float* state, int64_t col, int64_t width,
                              const Ahead next) {
    for (int64_t step = steps - 1; step >= 0; step--) {
      const int64_t r = step * kStep;
      for (int64_t i = 0; i < kStep; i++) next.fetch(r + i);
      const float *g = g_ + r * inner_pad_, *v1 = v1_ + r * inner_pad_;
      if (chunk_.raises[step] == Raise::kStep) {
        scale_panel_cols(inner_, state, queries_t_.panel, NV, chunk_.scale + r * width + col);
      }
      if (chunk_.raises[step] != Raise::kTokens) {
        step_panel_tokens<NV, true>(inner_, state, queries_t_.panel, v1, inner_pad_, g, inner_pad_,
                                    chunk_.fq + r * width + col, width, chunk_.pairs + r * kStep,
                                    nullptr, d_ + r * width + col, width);
        continue;
      }
      for (int64_t i = kStep - 1; i >= 0; i--) {
        const int64_t at = (r + i) * width + col;
        token_panel<NV, Scale::kColumns>(inner_, state, queries_t_.panel, chunk_.scale + at,
                                         v1 + i * inner_pad_, g + i * inner_pad_, chunk_.fq + at,
                                         1.0f, d_ + at);
      }
    }
  }

  template <int NV>
  HWY_NOINLINE void value_panel(int64_t steps, float* state, int64_t col, int64_t width,
                                const Ahead written) {
    for (int64_t step = steps - 1; step >= 0; step--) {
      const int64_t r = step * kStep;
      for (int64_t i = 0; i < kStep; i++) written.fetch_to_write(r + i);
      const float *fq = chunk_.fq + r * width, *fk = chunk_.fk + r * width;
      const float* g = g_ + r * inner_pad_ + col;
      float* out = dv_rows_ + r * dv_ + col;
      if (chunk_.raises[step] == Raise::kStep) {
        scale_panel_rows(width, state, queries_.panel, NV, chunk_.scale + r * width);
      }
      if (chunk_.raises[step] != Raise::kTokens) {
        step_panel_tokens<NV, true>(width, state, queries_.panel, fk, width, fq, width, g,
                                    inner_pad_, chunk_.pairs + r * kStep, nullptr, out, dv_);
        continue;
      }
      for (int64_t i = kStep - 1; i >= 0; i--) {
        token_panel<NV, Scale::kRows>(width, state, queries_.panel, chunk_.scale + (r + i) * width,
                                      fk + i * width, fq + i * width, g + i * inner_pad_, 1.0f,
                                      out + i * dv_);
      }
    }
  }

  // Keys that all queries in the states see.
  void read_keys(int64_t s, int64_t n) {
    const uint8_t* keep = load_key_chunk(s, n, n, !has_final());
    if (s_.exact()) {
      if (plain_) {
        plain_features(n, s_, chunk_.yk, chunk_.fk);
        chunk_.zero_rows(n, s_, keep);
      } else {
        signed_exponents(n, s_, chunk_.yk, keep, chunk_.xk);
        relative_features(n, s_, chunk_.xk, rho_, 1.0f, nullptr, keep, chunk_.fk);
      }
    }
    read_tokens(queries_t_, n, v1_, inner_pad_, d_, s_.padded);
    read_tokens(queries_, n, chunk_.fk, s_.padded, dv_rows_, dv_);
    store_keys(s, n);
  }

  // Causal queries before the first key: they matter to the initial state alone.
  void add_queries(int64_t t, int64_t n) {
    load_query_chunk(t, n, n, true);
    if (s_.exact()) {
      if (plain_) {
        plain_features(n, s_, chunk_.yq, chunk_.fq);
      } else {
        reverse_exponents(n);
        if (exceeds(n, s_, chunk_.xq, rho_)) {
          raise_references(n, s_, chunk_.xq, rho_, chunk_.scale);
          scale_rows(queries_, chunk_.scale);
          scale_cols(queries_t_, chunk_.scale);
        }
        relative_features(n, s_, chunk_.xq, rho_, -1.0f, nullptr, with_keys_, chunk_.fq);
      }
    }
    add_tokens(queries_, n, chunk_.fq, s_.padded, g_, inner_pad_);
    add_tokens(queries_t_, n, g_, inner_pad_, chunk_.fq, s_.padded);
  }

  // Gradients of keys [s, s + n), from d_ and dv_rows_, or their sum over the group's heads.
  void store_keys(int64_t s, int64_t n) {
    float *dv = dv_rows_, *dy = nullptr;
    if (!s_.given) dy = grad_k_.through_map(n, chunk_.yk, chunk_.fk, d_);
    const int64_t width = grad_k_.width();
    float* dk = s_.given ? d_ : dy;
    if (group_ > 1) {
      add_block(n * dv_, dv, sum_v_ + s * dv_, first_);
      add_block(n * width, dk, sum_k_ + s * width, first_);
      if (!last_) return;
      dv = sum_v_ + s * dv_;
      dk = sum_k_ + s * width;
    }
    store_rows_of(p_.dtype, dv, dv_, p_.value_dim, p_.grad_v, b_, kv_, s, n);
    if (s_.given) {
      store_rows_of(p_.dtype, dk, width, s_.features, p_.grad_k, b_, kv_, s, n);
    } else {
      grad_k_.through_projection(p_.grad_k, b_, kv_, s, n, dk, chunk_.xk_rows, chunk_.xk_row);
    }
  }

  void store_state_gradients() {
    const int64_t F = s_.features, Dv = p_.value_dim, index = b_ * p_.kv_heads + kv_;
    float* gs = static_cast<float*>(p_.grad_s_in);
    float* gz = static_cast<float*>(p_.grad_z_in);
    const float* m = static_cast<const float*>(p_.m_in);
    for (int64_t f = 0; f < F; f++) {
      const int64_t at = s_.at(f);
      float by = 1.0f;
      if (s_.exact() && !plain_) {
        const float own = m ? m[index * F + f] * kLog2e : 0.0f;
        by = std::exp2(std::clamp(own + rho_[at], -200.0f, 126.0f));
      }
      for (int64_t j = 0; gs && j < Dv; j++) {
        float& to = gs[(index * F + f) * Dv + j];
        to = (first_ ? 0.0f : to) + by * queries_.at(at, j);
      }
      if (gz) {
        float& to = gz[index * F + f];
        to = (first_ ? 0.0f : to) + by * queries_t_.at(Dv, at);
      }
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels::linear
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_LINEAR_BACKWARD_INL_H_
