// Supported pairs of a block of queries, sorted by key, so that a row of dk and dv is read and
// written once for all the block's queries that support it. Include after hwy/foreach_target.h.
#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"

#if defined(HEDGEROW_KERNELS_ENTMAX_ATTENTION_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDGEROW_KERNELS_ENTMAX_ATTENTION_PAIRS_INL_H_
#undef HEDGEROW_KERNELS_ENTMAX_ATTENTION_PAIRS_INL_H_
#else
#define HEDGEROW_KERNELS_ENTMAX_ATTENTION_PAIRS_INL_H_
#endif

#include "kernels/common/gemm-inl.h"
#include "kernels/entmax/attention_internal.h"

HWY_BEFORE_NAMESPACE();
namespace hedgerow::kernels {
namespace HWY_NAMESPACE {

// Rows that gradients are added to, in float32.
struct GradientRows {
  float* data;
  int64_t stride;
};

class PairBlock {
 public:
  PairBlock(int64_t keys, PairScratch& scratch) : keys_(keys), scratch_(scratch) {
    // a tile may overshoot, and lists are written in whole vectors
    const int64_t size = (kPairsPerKey + kRowTile) * keys + 256;
    for (AlignedBuffer<int32_t>* x : {&scratch.key, &scratch.row, &scratch.sorted_row}) {
      if (x->size() < size) x->resize(size);
    }
    for (AlignedBuffer<float>* x :
         {&scratch.dscore, &scratch.weight, &scratch.sorted_dscore, &scratch.sorted_weight}) {
      reserve(*x, size);
    }
    if (scratch.first.size() < keys + 2) scratch.first.resize(keys + 2);
  }

  // Where the next row's pairs are written; they count once append() says so.
  int32_t* keys() { return scratch_.key.data() + num_; }
  float* dscores() { return scratch_.dscore.data() + num_; }
  float* weights() { return scratch_.weight.data() + num_; }
  // n pairs of row r of the block.
  void append(int64_t r, int64_t n) {
    std::fill_n(scratch_.row.data() + num_, n, static_cast<int32_t>(r));
    num_ += n;
  }

  // Whether another tile's pairs would not pay or not fit.
  bool full() const { return num_ >= kPairsPerKey * keys_; }

  // dk += dS^T Q, dv += W^T dO over the block's rows of q and grad_out.
  void flush(const GradientRows& q, const GradientRows& grad_out, const GradientRows& dk,
             const GradientRows& dv, int64_t key_width, int64_t value_width) {
    if (num_ == 0) return;
    sort();
    add_products(scratch_.sorted_dscore.data(), q, dk, key_width);
    add_products(scratch_.sorted_weight.data(), grad_out, dv, value_width);
    num_ = 0;
  }

 private:
  // first[s] .. first[s + 1) are the pairs of key s, in the order they came.
  void sort() {
    int32_t* next = scratch_.first.data() + 1;  // next[s] grows from first[s] to first[s + 1]
    std::fill_n(scratch_.first.data(), keys_ + 2, 0);
    for (int64_t i = 0; i < num_; i++) next[scratch_.key[i] + 1]++;
    for (int64_t s = 1; s <= keys_; s++) next[s] += next[s - 1];
    for (int64_t i = 0; i < num_; i++) {
      const int32_t at = next[scratch_.key[i]]++;
      scratch_.sorted_row[at] = scratch_.row[i];
      scratch_.sorted_dscore[at] = scratch_.dscore[i];
      scratch_.sorted_weight[at] = scratch_.weight[i];
    }
  }

  void add_products(const float* w, const GradientRows& x, const GradientRows& to, int64_t width) {
    const int64_t lanes = float_lanes();
    for_vec_panels(width / lanes, [&](auto nv, int64_t j) HEDGEROW_FUNCTOR {
      add_panel<decltype(nv)::value>(w, x.data + j * lanes, x.stride, to.data + j * lanes,
                                     to.stride);
    });
  }

  template <int NV>
  void add_panel(const float* HWY_RESTRICT w, const float* HWY_RESTRICT x, int64_t x_stride,
                 float* HWY_RESTRICT to, int64_t to_stride) {
    const FloatTag d;
    const int64_t lanes = float_lanes();
    const int32_t* first = scratch_.first.data();
    const int32_t* rows = scratch_.sorted_row.data();
    for (int64_t s = 0; s < keys_; s++) {
      if (first[s] == first[s + 1]) continue;
      float* out = to + s * to_stride;
      FloatVec sum[NV];
      HEDGEROW_UNROLL
      for (int j = 0; j < NV; j++) sum[j] = hn::LoadU(d, out + j * lanes);
      for (int32_t i = first[s]; i < first[s + 1]; i++) {
        const float* row = x + rows[i] * x_stride;
        const FloatVec wi = hn::Set(d, w[i]);
        HEDGEROW_UNROLL
        for (int j = 0; j < NV; j++) {
          sum[j] = hn::MulAdd(wi, hn::LoadU(d, row + j * lanes), sum[j]);
        }
      }
      HEDGEROW_UNROLL
      for (int j = 0; j < NV; j++) hn::StoreU(sum[j], d, out + j * lanes);
    }
  }

  int64_t keys_, num_ = 0;
  PairScratch& scratch_;
};

}  // namespace HWY_NAMESPACE
}  // namespace hedgerow::kernels
HWY_AFTER_NAMESPACE();
#endif  // HEDGEROW_KERNELS_ENTMAX_ATTENTION_PAIRS_INL_H_
