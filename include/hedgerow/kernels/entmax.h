// alpha-entmax of rows on raw memory: the transform, its gradients, its loss.
//
//   p = entmax_alpha(x):  p_i = [ (alpha-1) x_i - tau ]_+^(1/(alpha-1)),  tau such that sum p = 1
//
// alpha = 1 is softmax, alpha = 2 sparsemax; alpha is finite and >= 1, anything else throws
// hedgerow::Error naming alpha and the value. p is continuous in alpha, alpha = 1 included, where
// gradients for alpha are the right-hand limit.
//
// A row is any dimension of a tensor with any strides: `sizes` are the other dimensions, each
// tensor has one stride per entry of `sizes` and a `step` between neighbours of a row, all counted
// in elements. Rows whose step is not 1 pass through scratch of a few rows; tensors are never
// copied. Entries that are -inf or that the mask excludes get p = 0 and are never read into a
// result; a row without entries gives zeros and zero gradients. Entries of +inf share the row
// equally. NaN among the visible entries gives an undefined row. Sizes of 0 work.
//
// float32 and bfloat16 run vector kernels for alpha <= 2 (float32 arithmetic, thresholds and long
// sums in double) and double arithmetic on the few candidates above it; float64 runs the reference.
// Absolute error of p in float32: below 2e-6 for alpha in [1, 10] and any size of x. Results do not
// depend on the number of threads, bit for bit.
// Cost: three passes over a row, plus a few over the entries near its maximum. Scratch per thread:
// O(length). Source: Peters, Niculae, Martins, "Sparse Sequence-to-Sequence Models" (arXiv
// 1905.05702); Correia, Niculae, Martins, "Adaptively Sparse Transformers" (arXiv 1909.00015).
#pragma once

#include <cstdint>
#include <vector>

#include "hedgerow/kernels/types.h"

namespace hedgerow::kernels {

// What all calls share.
struct EntmaxRows {
  DType dtype = DType::kFloat32;  // of x, p and all gradients but alpha's
  std::vector<int64_t> sizes;     // dimensions other than the row's; empty: one row
  int64_t length = 0;             // of a row
  const double* alpha = nullptr;  // [num_alphas]
  int64_t num_alphas = 1;
  std::vector<int64_t> alpha_strides;  // one per size, >= 0; 0 broadcasts, empty: one alpha for all
};

// A tensor that is read, and one that is written whole. Empty strides: rows lie contiguously, one
// after the other, and step is 1.
struct ConstRows {
  const void* data = nullptr;
  std::vector<int64_t> strides;
  int64_t step = 1;
};
struct MutRows {
  void* data = nullptr;
  std::vector<int64_t> strides;
  int64_t step = 1;
};
// Bytes, non-zero = keep; strides and step of 0 broadcast. data == nullptr keeps everything.
struct RowMask {
  const uint8_t* data = nullptr;
  std::vector<int64_t> strides;
  int64_t step = 1;
};

// Writes p. Nothing else needs saving: the backward works from p alone.
void entmax_forward(const EntmaxRows& rows, const ConstRows& x, const RowMask& mask,
                    const MutRows& p);

// dx_i = s_i (g_i - sum s g / sum s) with s_i = p_i^(2-alpha) on the support, 0 off it; dx
// saturates at the largest finite number. grad_alpha [num_alphas], written whole, sums
// sum_i g_i dp_i/dalpha over the rows that share the alpha, in row order; nullptr: not wanted.
// dx.data may be nullptr. g = grad_p is not read where p = 0.
void entmax_backward(const EntmaxRows& rows, const ConstRows& p, const ConstRows& grad_p,
                     const MutRows& dx, double* grad_alpha);

// entmax of the k largest entries of each row, for rows too long to keep p: compact results, rows
// numbered in the order of `sizes`. Where the support has at most k entries (complete[row] = 1) the
// result is exactly entmax of the row; elsewhere it is entmax of the k largest, and the caller
// raises k or takes entmax_forward. entmax_backward on `values` as rows of length k gives the
// gradient of the entries at `indices`.
struct EntmaxTopK {
  int64_t k = 0;                // >= 1; may exceed the length
  void* values = nullptr;       // [rows, k] of dtype, descending; 0 beyond the support
  int64_t* indices = nullptr;   // [rows, k]; distinct, -1 where values is 0
  uint8_t* complete = nullptr;  // [rows]
};
void entmax_topk_forward(const EntmaxRows& rows, const ConstRows& x, const RowMask& mask,
                         const EntmaxTopK& out);

// The Fenchel-Young loss that matches the transform, for classifiers:
//   loss = sum_i (p_i - [i = target]) x_i + H(p),  H(p) = (1 - sum_i p_i^alpha) / (alpha (alpha-1))
//   dloss/dx_i = p_i - [i = target],   dloss/dalpha = dH/dalpha at constant p
// alpha = 1 (H is Shannon's entropy) is cross-entropy. loss >= 0, and 0 when p_target = 1. A target
// of ignore_index gives loss and gradients of 0; any other outside [0, length) throws. A target
// that is itself excluded gives +inf and the gradient p; a row without entries gives 0.
struct EntmaxLoss {
  const int64_t* target = nullptr;  // [rows], numbered in the order of `sizes`
  int64_t ignore_index = -100;
  double* loss = nullptr;    // [rows]
  MutRows dx;                // of loss; data == nullptr: not wanted
  double* dalpha = nullptr;  // [rows], of loss; nullptr: not wanted
};
void entmax_loss(const EntmaxRows& rows, const ConstRows& x, const RowMask& mask,
                 const EntmaxLoss& out);

// The definitions: plain loops in double, every dtype, one thread.
void entmax_forward_reference(const EntmaxRows& rows, const ConstRows& x, const RowMask& mask,
                              const MutRows& p);
void entmax_backward_reference(const EntmaxRows& rows, const ConstRows& p, const ConstRows& grad_p,
                               const MutRows& dx, double* grad_alpha);
void entmax_topk_forward_reference(const EntmaxRows& rows, const ConstRows& x, const RowMask& mask,
                                   const EntmaxTopK& out);
void entmax_loss_reference(const EntmaxRows& rows, const ConstRows& x, const RowMask& mask,
                           const EntmaxLoss& out);

}  // namespace hedgerow::kernels
