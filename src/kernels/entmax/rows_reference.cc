#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "hedgerow/kernels/entmax.h"
#include "kernels/common/elements.h"
#include "kernels/entmax/entmax_math.h"
#include "kernels/entmax/rows_internal.h"

namespace hedgerow::kernels {
namespace {

using entmax::num_rows;
using entmax::RowOffsets;
using entmax::Threshold;

constexpr double kInf = std::numeric_limits<double>::infinity();

// Rows of a tensor as double.
class Reader {
 public:
  Reader(const EntmaxRows& rows, const ConstRows& t)
      : rows_(rows), t_(t), at_(rows, t.strides, rows.length) {}
  double operator()(int64_t r, int64_t i) const {
    return load_element(rows_.dtype, t_.data, at_(r) + i * t_.step);
  }
  std::vector<double> row(int64_t r) const {
    std::vector<double> x(rows_.length);
    for (int64_t i = 0; i < rows_.length; i++) x[i] = (*this)(r, i);
    return x;
  }

 private:
  const EntmaxRows& rows_;
  const ConstRows& t_;
  RowOffsets at_;
};

class Writer {
 public:
  Writer(const EntmaxRows& rows, const MutRows& t)
      : rows_(rows), t_(t), at_(rows, t.strides, rows.length) {}
  void operator()(int64_t r, const std::vector<double>& x) const {
    for (int64_t i = 0; i < rows_.length && t_.data; i++) {
      store_element(rows_.dtype, t_.data, at_(r) + i * t_.step, x[i]);
    }
  }

 private:
  const EntmaxRows& rows_;
  const MutRows& t_;
  RowOffsets at_;
};

// Scores of the rows, -inf where the mask excludes.
class Scores {
 public:
  Scores(const EntmaxRows& rows, const ConstRows& x, const RowMask& mask)
      : mask_(mask), x_(rows, x), mask_at_(rows, mask.strides, rows.length) {}
  std::vector<double> operator()(int64_t r) const {
    std::vector<double> z = x_.row(r);
    for (size_t i = 0; i < z.size() && mask_.data; i++) {
      if (!mask_.data[mask_at_(r) + static_cast<int64_t>(i) * mask_.step]) z[i] = -kInf;
    }
    return z;
  }

 private:
  const RowMask& mask_;
  Reader x_;
  RowOffsets mask_at_;
};

}  // namespace

void entmax_forward_reference(const EntmaxRows& rows, const ConstRows& x, const RowMask& mask,
                              const MutRows& p) {
  entmax::check_alphas(rows);
  const Scores scores(rows, x, mask);
  const Writer write(rows, p);
  const RowOffsets alpha_at(rows, rows.alpha_strides, 0);
  std::vector<double> weights(rows.length);
  for (int64_t r = 0; r < num_rows(rows); r++) {
    const std::vector<double> z = scores(r);
    entmax::row_forward(z.data(), rows.length, rows.alpha[alpha_at(r)], weights.data());
    write(r, weights);
  }
}

void entmax_backward_reference(const EntmaxRows& rows, const ConstRows& p, const ConstRows& grad_p,
                               const MutRows& dx, double* grad_alpha) {
  entmax::check_alphas(rows);
  const Reader weights(rows, p), grad(rows, grad_p);
  const Writer write(rows, dx);
  const RowOffsets alpha_at(rows, rows.alpha_strides, 0);
  if (grad_alpha) std::fill(grad_alpha, grad_alpha + rows.num_alphas, 0.0);
  std::vector<double> dz(rows.length);
  for (int64_t r = 0; r < num_rows(rows); r++) {
    const double dalpha = entmax::row_backward(weights.row(r).data(), grad.row(r).data(),
                                               rows.length, rows.alpha[alpha_at(r)], dz.data());
    write(r, dz);
    if (grad_alpha) grad_alpha[alpha_at(r)] += dalpha;
  }
}

void entmax_topk_forward_reference(const EntmaxRows& rows, const ConstRows& x, const RowMask& mask,
                                   const EntmaxTopK& out) {
  entmax::check_alphas(rows);
  HEDGEROW_CHECK(out.k >= 1, "entmax_topk: k must be at least 1; got ", out.k);
  const Scores scores(rows, x, mask);
  const RowOffsets alpha_at(rows, rows.alpha_strides, 0);
  for (int64_t r = 0; r < num_rows(rows); r++) {
    std::vector<double> z = scores(r);
    std::replace_if(
        z.begin(), z.end(), [](double v) { return std::isnan(v); }, -kInf);  // to sort
    std::vector<int64_t> order(z.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return z[a] > z[b]; });
    const double alpha = rows.alpha[alpha_at(r)];
    std::vector<double> weights(rows.length);
    entmax::row_forward(z.data(), rows.length, alpha, weights.data());
    const int64_t m = std::min<int64_t>(out.k, rows.length);
    // the support is a run of the largest entries
    out.complete[r] = m == rows.length || weights[order[m]] == 0;
    std::vector<double> top(m);
    for (int64_t i = 0; i < m; i++) top[i] = z[order[i]];
    entmax::row_forward(top.data(), m, alpha, weights.data());
    for (int64_t i = 0; i < out.k; i++) {
      const double w = i < m ? weights[i] : 0.0;
      store_element(rows.dtype, out.values, r * out.k + i, w);
      out.indices[r * out.k + i] = w > 0 ? order[i] : -1;
    }
  }
}

void entmax_loss_reference(const EntmaxRows& rows, const ConstRows& x, const RowMask& mask,
                           const EntmaxLoss& out) {
  entmax::check_alphas(rows);
  entmax::check_targets(rows, out);
  const Scores scores(rows, x, mask);
  const Writer write(rows, out.dx);
  const RowOffsets alpha_at(rows, rows.alpha_strides, 0);
  for (int64_t r = 0; r < num_rows(rows); r++) {
    const std::vector<double> z = scores(r);
    std::vector<double> p(rows.length);
    double loss = 0, dalpha = 0;
    const int64_t y = out.target[r];
    if (y != out.ignore_index) {
      const Threshold<double> row =
          entmax::row_forward(z.data(), rows.length, rows.alpha[alpha_at(r)], p.data());
      if (row.max != -kInf) {
        // sum p x - x_y + H with everything relative to lambda
        loss = -row.above_lambda(z[y]);
        for (int64_t i = 0; i < rows.length; i++) {
          const entmax::EntropyTerm<double> h = entmax::entropy_term(p[i], row.e);
          if (p[i] > 0) loss += row.e / (1 + row.e) * p[i] * row.above_lambda(z[i]);
          dalpha += h.dalpha;
        }
        loss = std::max(loss, 0.0);
        if (z[y] != -kInf) p[y] -= 1;
      }
    }
    out.loss[r] = loss;
    if (out.dalpha) out.dalpha[r] = dalpha;
    write(r, p);
  }
}

}  // namespace hedgerow::kernels
