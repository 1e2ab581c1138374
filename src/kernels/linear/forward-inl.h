// The forward of one head: chunks of keys that only enter the state, of queries that only read it,
// and of both for causal attention.
#include <cstdint>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_LINEAR_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_LINEAR_FORWARD_INL_H_
#undef HEDGEROW_KERNELS_LINEAR_FORWARD_INL_H_
#else
#define HEDGEROW_KERNELS_LINEAR_FORWARD_INL_H_
#endif

#include "kernels/linear/chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels::linear {
namespace HWY_NAMESPACE {

class HeadForward {
 public:
  static int64_t floats(const ForwardCall& p, const FeatureShape& s) {
    const int64_t dv = round_up(p.value_dim, float_lanes());
    const State state = make_state(s.padded, dv, p.is_causal ? step_panel() : 0);
    return Chunk::floats(s, dv) + MapWeights::floats(s) * 2 + Arena::rounded(state.floats()) +
           Arena::rounded(s.padded) * 3 + Arena::rounded(kChunk * dv);
  }

  HeadForward(const ForwardCall& p, const FeatureShape& s, Arena& arena)
      : p_(p),
        s_(s),
        dv_(round_up(p.value_dim, float_lanes())),
        chunk_(s, dv_, arena),
        wq_(s, arena),
        wk_(s, arena) {
    state_ = make_state(s.padded, dv_, p.is_causal ? step_panel() : 0);
    state_.data = arena.take(state_.floats());
    z_ = arena.take(s.padded);
    refs_.ref = arena.take(s.padded);
    refs_.loaded = arena.take(s.padded);
    out_ = arena.take(kChunk * dv_);
  }

  void run(int64_t b, int64_t h) {
    const int64_t group = p_.heads / p_.kv_heads, offset = p_.keys - p_.queries;
    b_ = b;
    h_ = h;
    kv_ = h / group;
    if (!s_.given) {
      const float scale = s_.exact() ? kLog2e : 1.0f;
      wq_.pack(p_.dtype, p_.wq, p_.bq, h, s_, scale);
      wk_.pack(p_.dtype, p_.wk, p_.bk, kv_, s_, scale);
    }
    load_state(p_, b * p_.kv_heads + kv_, s_, state_, z_, refs_);
    const int64_t lone_keys = p_.is_causal ? std::max<int64_t>(offset, 0) : p_.keys;
    const int64_t lone_queries =
        p_.is_causal ? std::clamp<int64_t>(-offset, 0, p_.queries) : p_.queries;
    for (int64_t s = 0; s < lone_keys; s += kChunk) absorb(s, std::min(kChunk, lone_keys - s));
    for (int64_t t = 0; t < lone_queries; t += kChunk) {
      answer(t, std::min(kChunk, lone_queries - t));
    }
    if (p_.is_causal) {
      for (int64_t t = lone_queries, s = lone_keys; t < p_.queries; t += kChunk, s += kChunk) {
        pass(t, s, std::min(kChunk, p_.queries - t));
      }
    }
    if (h % group == 0) store_state(p_, b * p_.kv_heads + kv_, s_, state_, z_, refs_);
  }

 private:
  // Keys [s, s + n) enter the state.
  void absorb(int64_t s, int64_t n) {
    const uint8_t* keep = chunk_.load_keep(p_.key_mask, b_, s, n);
    chunk_.load_values(p_, b_, kv_, s, n, n, keep);
    chunk_.load_keys(p_, s_, wk_, b_, kv_, s, n, keep);
    if (s_.exact() && !chunk_.plain_keys(n, s_, refs_, keep)) {
      leave_plain(s_, state_, z_, refs_);
      if (chunk_.exact_keys(n, s_, refs_, keep)) {
        scale_rows(state_, chunk_.scale);
        add_rows(0, s_.padded, nullptr, 0, chunk_.scale, z_);
      }
    }
    add_tokens(state_, n, chunk_.fk, s_.padded, chunk_.v, chunk_.v_row);
    add_rows(n, s_.padded, chunk_.fk, s_.padded, nullptr, z_);
  }

  // Queries [t, t + n) read the state.
  void answer(int64_t t, int64_t n) {
    chunk_.load_queries(p_, s_, wq_, b_, h_, t, n);
    std::fill(chunk_.maximum, chunk_.maximum + n, 0.0f);
    if (s_.exact() && !chunk_.plain_queries(n, s_, refs_)) {
      leave_plain(s_, state_, z_, refs_);
      chunk_.exact_queries(0, n, s_, refs_);
    }
    for (int64_t r = 0; r < n; r++) {
      const float den = vec_dot(s_.padded, chunk_.fq + r * s_.padded, z_);
      chunk_.inv[r] = den == 0 ? 0.0f : 1.0f / den;
    }
    read_tokens(state_, n, chunk_.fq, s_.padded, out_, dv_);
    store_rows(t, n, true);
  }

  // Queries t + i and keys s + i, i < n: each query sees the keys up to its own.
  void pass(int64_t t, int64_t s, int64_t n) {
    const int64_t steps = (n + kStep - 1) / kStep, n4 = steps * kStep;
    const uint8_t* keep = chunk_.load_keep(p_.key_mask, b_, s, n);
    chunk_.load_values(p_, b_, kv_, s, n, n4, keep);
    chunk_.load_keys(p_, s_, wk_, b_, kv_, s, n, keep);
    chunk_.load_queries(p_, s_, wq_, b_, h_, t, n);
    std::fill(chunk_.maximum, chunk_.maximum + n4, 0.0f);
    std::fill(chunk_.raises, chunk_.raises + steps, Raise::kNone);
    if (s_.exact() &&
        !(chunk_.plain_keys(n, s_, refs_, keep) && chunk_.plain_queries(n, s_, refs_))) {
      leave_plain(s_, state_, z_, refs_);
      if (chunk_.exact_pass(n, s_, refs_, keep, false)) {
        scale_rows(state_, chunk_.scale);
        add_rows(0, s_.padded, nullptr, 0, chunk_.scale, z_);
      }
    }
    chunk_.zero_tail(n, n4, s_);
    for (int64_t step = 0; step < steps; step++) normalisers(step);
    float* out = out_;
    int64_t out_row = dv_;
    const bool in_place =
        p_.dtype == DType::kFloat32 && p_.value_dim == dv_ && n == n4;  // no copy of the rows
    if (in_place) {
      out = row<float>(p_.out, b_, h_, t);
      out_row = p_.out.row_stride;
    }
    pass_values(steps, out, out_row);
    if (!in_place || p_.inv_den != nullptr) store_rows(t, n, false, in_place);
  }

  // Weights of the pairs inside a step, 1 / normaliser of its queries, and z after it.
  HWY_INLINE void normalisers(int64_t step) {
    const FloatTag d;
    const int64_t width = s_.padded;
    const float* fq = chunk_.fq + step * kStep * width;
    const float* fk = chunk_.fk + step * kStep * width;
    float* inv = chunk_.inv + step * kStep;
    float* w = chunk_.pairs + step * kStep * kStep;
    const float* scale = chunk_.scale + step * kStep * width;
    if (chunk_.raises[step] == Raise::kStep) add_rows(0, width, nullptr, 0, scale, z_);
    if (chunk_.raises[step] == Raise::kPairs) {
      for (int64_t i = 0; i < kStep; i++) {
        const float den = vec_dot(width, fq + i * width, z_) + w[4 * i] + w[4 * i + 1] +
                          w[4 * i + 2] + w[4 * i + 3];
        inv[i] = den == 0 ? 0.0f : 1.0f / den;
      }
      add_rows(kStep, width, fk, width, scale, z_);
      return;
    }
    FloatVec c[16];
    HEDGEROW_UNROLL
    for (int i = 0; i < 16; i++) c[i] = hn::Zero(d);
    // c[4 i + j] = fq_i . fk_j for j <= i; fq_i . z in slots 3, 7, 11 and 2
    for (int64_t x = 0; x < width; x += float_lanes()) {
      FloatVec k[4];
      HEDGEROW_UNROLL
      for (int j = 0; j < 4; j++) k[j] = hn::LoadU(d, fk + j * width + x);
      const FloatVec z = hn::LoadU(d, z_ + x);
      HEDGEROW_UNROLL
      for (int i = 0; i < 4; i++) {
        const FloatVec q = hn::LoadU(d, fq + i * width + x);
        HEDGEROW_UNROLL
        for (int j = 0; j <= i; j++) c[4 * i + j] = hn::MulAdd(q, k[j], c[4 * i + j]);
        const int slot = i < 3 ? 4 * i + 3 : 2;
        c[slot] = hn::MulAdd(q, z, c[slot]);
      }
      hn::StoreU(hn::Add(hn::Add(hn::Add(k[0], k[1]), hn::Add(k[2], k[3])), z), d, z_ + x);
    }
    lane_sums(c, w);
    const float den[4] = {w[3] + w[0], w[7] + w[4] + w[5], w[11] + w[8] + w[9] + w[10],
                          w[2] + w[12] + w[13] + w[14] + w[15]};
    for (int i = 0; i < 4; i++) inv[i] = den[i] == 0 ? 0.0f : 1.0f / den[i];
  }

  // out rows = (state and pairs on the values) * inv; the state after the chunk.
  void pass_values(int64_t steps, float* out, int64_t out_row) {
    const int64_t width = s_.padded;
    for_step_panels(state_, [&](auto nv, int64_t panel, int64_t col) HEDGEROW_FUNCTOR {
      constexpr int NV = decltype(nv)::value;
      pass_panel<NV>(steps, state_.panel_data(panel), chunk_.v + col, out + col, out_row, width);
    });
  }

  template <int NV>
  HWY_NOINLINE void pass_panel(int64_t steps, float* state, const float* v, float* out,
                               int64_t out_row, int64_t width) {
    for (int64_t step = 0; step < steps; step++) {
      const int64_t r = step * kStep;
      const float* fq = chunk_.fq + r * width;
      const float* fk = chunk_.fk + r * width;
      for (int64_t i = 2 * kStep; i < 3 * kStep; i++) {  // values and output rows two steps on
        for (int64_t j = 0; j < NV; j++) {
          __builtin_prefetch(v + (r + i) * chunk_.v_row + j * float_lanes());
          __builtin_prefetch(out + (r + i) * out_row + j * float_lanes(), 1);
        }
      }
      if (chunk_.raises[step] == Raise::kStep) {
        scale_panel_rows(width, state, state_.panel, NV, chunk_.scale + r * width);
      }
      if (chunk_.raises[step] == Raise::kPairs) {
        step_panel_tokens<NV, false, true>(width, state, state_.panel, fq, width, fk, width,
                                           v + r * chunk_.v_row, chunk_.v_row,
                                           chunk_.pairs + r * kStep, chunk_.inv + r,
                                           out + r * out_row, out_row, chunk_.scale + r * width);
        continue;
      }
      step_panel_tokens<NV, false>(width, state, state_.panel, fq, width, fk, width,
                                   v + r * chunk_.v_row, chunk_.v_row, chunk_.pairs + r * kStep,
                                   chunk_.inv + r, out + r * out_row, out_row);
    }
  }

  // Output rows (times inv if `scaled`, else already done) and what the backward needs.
  void store_rows(int64_t t, int64_t n, bool scaled, bool in_place = false) {
    const int64_t at = (b_ * p_.heads + h_) * p_.queries + t;
    for (int64_t r = 0; r < n; r++) {
      if (!in_place) {
        void* to =
            static_cast<char*>(p_.out.data) +
            (b_ * p_.out.batch_stride + h_ * p_.out.head_stride + (t + r) * p_.out.row_stride) *
                element_bytes(p_.dtype);
        store_row(p_.dtype, out_ + r * dv_, p_.value_dim, scaled ? chunk_.inv[r] : 1.0f, to);
      }
      if (p_.inv_den) static_cast<float*>(p_.inv_den)[at + r] = chunk_.inv[r];
      if (p_.row_exponent) {
        static_cast<float*>(p_.row_exponent)[at + r] =
            chunk_.inv[r] == 0 ? 0.0f : chunk_.maximum[r];
      }
    }
  }

  const ForwardCall& p_;
  const FeatureShape& s_;
  int64_t dv_, b_ = 0, h_ = 0, kv_ = 0;
  Chunk chunk_;
  MapWeights wq_, wk_;
  State state_;
  float* z_;
  References refs_;
  float* out_;
};

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels::linear
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_LINEAR_FORWARD_INL_H_
