// A chunk of up to 64 tokens in scratch, its features, and the references of `exp`.
#include <cstdint>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_LINEAR_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_LINEAR_CHUNK_INL_H_
#undef HEDGEROW_KERNELS_LINEAR_CHUNK_INL_H_
#else
#define HEDGEROW_KERNELS_LINEAR_CHUNK_INL_H_
#endif

#include "kernels/linear/features-inl.h"
#include "kernels/linear/maps-inl.h"
#include "kernels/linear/state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels::linear {
namespace HWY_NAMESPACE {

// Weights of one head's map.
struct MapWeights {
  float *w, *b;
  static int64_t floats(const FeatureShape& s) {
    return s.given ? 0 : Arena::rounded(s.dim * s.width_pad) + Arena::rounded(s.width_pad);
  }
  MapWeights(const FeatureShape& s, Arena& arena) : w(nullptr), b(nullptr) {
    if (s.given) return;
    w = arena.take(s.dim * s.width_pad);
    b = arena.take(s.width_pad);
  }
  void pack(DType dtype, const void* weight, const void* bias, int64_t h, const FeatureShape& s,
            float scale) {
    pack_weight(dtype, weight, bias, h, s, scale, w, b);
  }
};

// References of the signed features, in log2 units. Plain: all are 0, no row has a maximum, and
// ref is not read.
struct References {
  bool plain = true;
  float* ref = nullptr;
  float* loaded = nullptr;  // what m_in gave, so that an unchanged m goes out as it came in
  bool has_loaded = false;
};

// A state in the caller's layout and index: s [F,Dv], z [F], m [F].
template <typename Call>
HWY_INLINE void load_state(const Call& p, int64_t index, const FeatureShape& s, const State& state,
                           float* z, References& refs) {
  std::fill(state.data, state.data + state.floats(), 0.0f);
  std::fill(z, z + s.padded, 0.0f);
  refs.plain = true;
  refs.has_loaded = p.s_in != nullptr && p.m_in != nullptr && s.exact();
  if (p.s_in == nullptr) return;
  const float* s_in = static_cast<const float*>(p.s_in) + index * s.features * p.value_dim;
  const float* z_in = static_cast<const float*>(p.z_in) + index * s.features;
  for (int64_t f = 0; f < s.features; f++) {
    for (int64_t j = 0; j < p.value_dim; j++) state.at(s.at(f), j) = s_in[f * p.value_dim + j];
    z[s.at(f)] = z_in[f];
  }
  if (!refs.has_loaded) return;
  const float* m = static_cast<const float*>(p.m_in) + index * s.features;
  std::fill(refs.ref, refs.ref + s.padded, kUnset);
  std::fill(refs.loaded, refs.loaded + s.padded, kUnset);
  for (int64_t f = 0; f < s.features; f++) {
    bool seen = z_in[f] != 0;
    for (int64_t j = 0; j < p.value_dim && !seen; j++) seen = s_in[f * p.value_dim + j] != 0;
    if (!seen) continue;
    refs.ref[s.at(f)] = refs.loaded[s.at(f)] = m[f] * kLog2e;
    if (m[f] != 0) refs.plain = false;
  }
}

template <typename Call>
HWY_INLINE void store_state(const Call& p, int64_t index, const FeatureShape& s, const State& state,
                            const float* z, const References& refs) {
  float* s_out = static_cast<float*>(p.s_out);
  float* z_out = static_cast<float*>(p.z_out);
  float* m_out = static_cast<float*>(p.m_out);
  const float* m_in = static_cast<const float*>(p.m_in);
  for (int64_t f = 0; f < s.features; f++) {
    const int64_t to = index * s.features + f, at = s.at(f);
    for (int64_t j = 0; s_out && j < p.value_dim; j++) {
      s_out[to * p.value_dim + j] = state.at(at, j);
    }
    if (z_out) z_out[to] = z[at];
    if (!m_out) continue;
    if (!s.exact() || refs.plain || refs.ref[at] == kUnset) {
      m_out[to] = 0;
    } else if (refs.has_loaded && refs.ref[at] == refs.loaded[at]) {
      m_out[to] = m_in[to];
    } else {
      m_out[to] = refs.ref[at] * kLn2;
    }
  }
}

// Sets the references of a plain state: 0, or none where a feature has seen no key.
HWY_INLINE void leave_plain(const FeatureShape& s, const State& state, const float* z,
                            References& refs) {
  if (!refs.plain) return;
  refs.plain = false;
  for (int64_t f = 0; f < s.padded; f++) {
    bool seen = z[f] != 0;
    for (int64_t j = 0; j < state.cols && !seen; j++) seen = state.at(f, j) != 0;
    refs.ref[f] = seen ? 0.0f : kUnset;
  }
}

// Rows [first, first + n) of a head as float32, `rows` of them (zeros from n on, and where keep is
// 0, which is not read). In place where the tensor allows it.
HWY_INLINE const float* load_rows(DType dtype, const ConstTensor& x, int64_t b, int64_t h,
                                  int64_t first, int64_t n, int64_t rows, int64_t width,
                                  int64_t padded, const uint8_t* keep, float* scratch,
                                  int64_t* stride) {
  if (dtype == DType::kFloat32 && width == padded && n == rows && keep == nullptr) {
    *stride = x.row_stride;
    return row<float>(x, b, h, first);
  }
  const int64_t bytes = element_bytes(dtype);
  const char* from = static_cast<const char*>(x.data) +
                     (b * x.batch_stride + h * x.head_stride + first * x.row_stride) * bytes;
  for (int64_t r = 0; r < rows; r++) {
    if (r < n && (keep == nullptr || keep[r])) {
      load_row(dtype, from + r * x.row_stride * bytes, width, padded, 1.0f, scratch + r * padded);
    } else {
      std::fill(scratch + r * padded, scratch + (r + 1) * padded, 0.0f);
    }
  }
  *stride = padded;
  return scratch;
}

// How the tokens of a step raise references: not, once for all of them, or each by itself.
enum class Raise : uint8_t { kNone, kStep, kTokens, kPairs };

struct Chunk {
  const float *xq_rows, *xk_rows, *v;  // inputs, where they lie or in scratch
  int64_t xq_row, xk_row, v_row;
  float *yq, *yk;        // [64][width_pad] projections
  float *xq, *xk;        // [64][padded] signed exponents (exact only)
  float *fq, *fk;        // [64][padded] features
  float* scale;          // [64][padded] state factors of tokens (or steps) that raise references
  float* pairs;          // [16][4][4] weights inside a step
  float *inv, *maximum;  // [64] 1 / normaliser, query maximum
  Ahead next_q, next_k;  // the next chunk's inputs
  Raise raises[kChunk / kStep];

  static int64_t floats(const FeatureShape& s, int64_t dv) {
    const int64_t y = s.given ? 0 : 2 * kChunk * (s.width_pad + s.dim);
    const int64_t exact = s.exact() ? (3 * kChunk + 1) * s.padded : 0;
    return y + exact + kChunk * (2 * s.padded + dv) + kChunk * (kStep + 2) + 16 * 16;
  }

  Chunk(const FeatureShape& s, int64_t dv, Arena& arena) {
    fq = arena.take(kChunk * s.padded);
    fk = arena.take(kChunk * s.padded);
    v_copy_ = arena.take(kChunk * dv);
    pairs = arena.take(kChunk * kStep);
    inv = arena.take(kChunk);
    maximum = arena.take(kChunk);
    xq = xk = scale = yq = yk = xq_copy_ = xk_copy_ = nullptr;
    if (!s.given) {
      yq = arena.take(kChunk * s.width_pad);
      yk = arena.take(kChunk * s.width_pad);
      xq_copy_ = arena.take(kChunk * s.dim);
      xk_copy_ = arena.take(kChunk * s.dim);
    }
    if (s.exact()) {
      xq = arena.take(kChunk * s.padded);
      xk = arena.take(kChunk * s.padded);
      scale = arena.take(kChunk * s.padded);
      top_ = arena.take(s.padded);
    }
    dv_ = dv;
  }

  // Keep bytes of keys [first, first + n); null when all are kept.
  const uint8_t* load_keep(const KeyMask& mask, int64_t b, int64_t first, int64_t n) {
    if (mask.data == nullptr) return nullptr;
    bool all = true;
    for (int64_t r = 0; r < n; r++) all &= (keep_[r] = mask.keep(b, first + r));
    return all ? nullptr : keep_;
  }

  // Values of n keys; rows [n, rows) are 0.
  template <typename Call>
  void load_values(const Call& p, int64_t b, int64_t kv, int64_t first, int64_t n, int64_t rows,
                   const uint8_t* keep) {
    v = load_rows(p.dtype, p.v, b, kv, first, n, rows, p.value_dim, dv_, keep, v_copy_, &v_row);
  }
  // Inputs, projections (unless yk has them: `again`) and features (not for kExp) of n keys.
  template <typename Call>
  void load_keys(const Call& p, const FeatureShape& s, const MapWeights& w, int64_t b, int64_t kv,
                 int64_t first, int64_t n, const uint8_t* keep, bool again = false) {
    load_features(p.dtype, p.k, s, w, b, kv, first, n, keep, again, xk_copy_, &xk_rows, &xk_row, yk,
                  fk);
    const int64_t next = again ? first - kChunk : first + n;
    next_k = ahead(p.dtype, p.k, b, kv, next, s.dim);
  }
  template <typename Call>
  void load_queries(const Call& p, const FeatureShape& s, const MapWeights& w, int64_t b, int64_t h,
                    int64_t first, int64_t n, bool again = false) {
    load_features(p.dtype, p.q, s, w, b, h, first, n, nullptr, again, xq_copy_, &xq_rows, &xq_row,
                  yq, fq);
    next_q = ahead(p.dtype, p.q, b, h, again ? first - kChunk : first + n, s.dim);
  }

  // Plain features of the keys; false when they are too large for that.
  bool plain_keys(int64_t n, const FeatureShape& s, const References& refs, const uint8_t* keep) {
    if (!refs.plain || !(plain_features(n, s, yk, fk, next_k) <= kPlainBound)) return false;
    zero_rows(n, s, keep);
    return true;
  }
  bool plain_queries(int64_t n, const FeatureShape& s, const References& refs, Ahead out = {}) {
    return refs.plain && plain_features(n, s, yq, fq, next_q, out) <= kPlainBound;
  }

  // Maxima (unless `maximum` has them: `saved`) and relative features of queries [from, to).
  void exact_queries(int64_t from, int64_t to, const FeatureShape& s, const References& refs,
                     bool saved = false) {
    float shift[kChunk];
    float* x = xq + from * s.padded;
    signed_exponents(to - from, s, yq + from * s.width_pad, nullptr, x);
    for (int64_t r = from; r < to; r++) {
      if (!saved) maximum[r] = row_maximum(s, xq + r * s.padded, refs.ref);
      shift[r - from] = -maximum[r];
    }
    relative_features(to - from, s, x, refs.ref, 1.0f, shift, nullptr, fq + from * s.padded);
  }

  // Relative features of n queries and keys of which each query sees the keys up to its own. Where
  // keys raise references a little, their step shares the raised ones; where a lot, it goes by its
  // pairs' own exponents or, for a backward, whose `saved` maxima are in maximum, token by token.
  // True if the whole chunk shares references raised by scale[0 .. padded).
  bool exact_pass(int64_t n, const FeatureShape& s, References& refs, const uint8_t* keep,
                  bool saved) {
    const int64_t width = s.padded;
    signed_exponents(n, s, yk, keep, xk);
    const bool raised = exceeds(n, s, xk, refs.ref);
    if (!raised || !exceeds(n, s, xk, refs.ref, kShare)) {
      if (raised) raise_references(n, s, xk, refs.ref, scale);
      relative_features(n, s, xk, refs.ref, -1.0f, nullptr, keep, fk);
      exact_queries(0, n, s, refs, saved);
      return raised;
    }
    for (int64_t r = 0; r < n; r += kStep) {
      const int64_t end = std::min<int64_t>(r + kStep, n);
      raise_step(r, end, s, xk, refs.ref);
      if (!saved && raises[r / kStep] == Raise::kTokens) {
        direct_step(r, end, s, refs, keep ? keep + r : nullptr);
        continue;
      }
      const bool each = raises[r / kStep] == Raise::kTokens;
      const int64_t rows = each ? 1 : end - r;
      for (int64_t i = r; i < end; i += rows) {
        if (each) raise_references(1, s, xk + i * width, refs.ref, scale + i * width);
        relative_features(rows, s, xk + i * width, refs.ref, -1.0f, nullptr,
                          keep ? keep + i : nullptr, fk + i * width);
        exact_queries(i, i + rows, s, refs, saved);
      }
    }
    return false;
  }

  // A step whose keys raise references a lot: its queries read the state with the references from
  // before the step, which a later key does not move, and meet the step's own keys pair by pair.
  // Afterwards the state is scaled once and takes all of them.
  void direct_step(int64_t r, int64_t end, const FeatureShape& s, References& refs,
                   const uint8_t* keep) {
    const int64_t width = s.padded, n = end - r;
    float *q = xq + r * width, *k = xk + r * width, shift[kStep];
    signed_exponents(n, s, yq + r * s.width_pad, nullptr, q);
    std::copy_n(refs.ref, width, top_);
    for (int64_t i = 0; i < n; i++) {
      raise_to(s, k + i * width, top_);
      maximum[r + i] = row_maximum(s, q + i * width, top_);
      shift[i] = -maximum[r + i];
    }
    relative_features(n, s, q, refs.ref, 1.0f, shift, nullptr, fq + r * width);
    direct_pairs(n, s, q, k, maximum + r, keep, pairs + r * kStep);
    raise_references(n, s, k, refs.ref, scale + r * width);
    relative_features(n, s, k, refs.ref, -1.0f, nullptr, keep, fk + r * width);
    raises[r / kStep] = Raise::kPairs;
  }

  // Decides how the step of rows [r, end) of x raises `ref`, and does it for a shared raise. Tokens
  // behind the last raise nothing.
  void raise_step(int64_t r, int64_t end, const FeatureShape& s, const float* x, float* ref) {
    const int64_t width = s.padded, n = end - r;
    Raise& how = raises[r / kStep];
    how = Raise::kNone;
    if (!exceeds(n, s, x + r * width, ref)) return;
    how = exceeds(n, s, x + r * width, ref, kShare) ? Raise::kTokens : Raise::kStep;
    if (how == Raise::kStep) raise_references(n, s, x + r * width, ref, scale + r * width);
    for (int64_t i = end; i < r + kStep; i++) std::fill_n(scale + i * width, width, 1.0f);
  }

  // Relative features of n keys that no query of the chunk reads; true if references were raised,
  // once for all, by the factors scale[0 .. padded).
  bool exact_keys(int64_t n, const FeatureShape& s, References& refs, const uint8_t* keep) {
    signed_exponents(n, s, yk, keep, xk);
    const bool raised = exceeds(n, s, xk, refs.ref);
    if (raised) raise_references(n, s, xk, refs.ref, scale);
    relative_features(n, s, xk, refs.ref, -1.0f, nullptr, keep, fk);
    return raised;
  }

  // Zeroes features from row n up to row `rows`.
  void zero_tail(int64_t n, int64_t rows, const FeatureShape& s) {
    std::fill(fq + n * s.padded, fq + rows * s.padded, 0.0f);
    std::fill(fk + n * s.padded, fk + rows * s.padded, 0.0f);
  }
  void zero_rows(int64_t n, const FeatureShape& s, const uint8_t* keep) {
    for (int64_t r = 0; keep && r < n; r++) {
      if (!keep[r]) std::fill_n(fk + r * s.padded, s.padded, 0.0f);
    }
  }

 private:
  void load_features(DType dtype, const ConstTensor& x, const FeatureShape& s, const MapWeights& w,
                     int64_t b, int64_t h, int64_t first, int64_t n, const uint8_t* keep,
                     bool again, float* copy, const float** rows, int64_t* stride, float* y,
                     float* f) {
    if (s.given) {
      const int64_t bytes = element_bytes(dtype);
      const char* from = static_cast<const char*>(x.data) +
                         (b * x.batch_stride + h * x.head_stride + first * x.row_stride) * bytes;
      for (int64_t r = 0; r < n; r++) {
        float* to = f + r * s.padded;
        if (keep && !keep[r]) {
          std::fill_n(to, s.padded, 0.0f);
        } else {
          load_row(dtype, from + r * x.row_stride * bytes, s.features, s.padded, 1.0f, to);
        }
      }
      return;
    }
    *rows = load_rows(dtype, x, b, h, first, n, n, s.dim, s.dim, keep, copy, stride);
    if (!again) project(n, s, *rows, *stride, w.w, w.b, y);
    if (!s.exact()) map_rows(n, s, y, *rows, *stride, keep, f);
  }

  int64_t dv_;
  float* top_ = nullptr;  // [padded]
  float *v_copy_, *xq_copy_, *xk_copy_;
  uint8_t keep_[kChunk];
};

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels::linear
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_LINEAR_CHUNK_INL_H_
