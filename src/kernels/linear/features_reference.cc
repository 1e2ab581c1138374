#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/parallel.h"
#include "kernels/common/elements.h"
#include "kernels/linear/linear_reference.h"

namespace hedgerow::kernels::reference {
namespace {

// phi = softmax(factor * y) over n entries; y of entry i is y[i % period], negated from period on.
void softmax_row(int64_t n, int64_t period, double factor, const double* y, double* phi) {
  auto logit = [&](int64_t i) { return i < period ? factor * y[i] : -factor * y[i - period]; };
  double top = logit(0), sum = 0;
  for (int64_t i = 1; i < n; i++) top = std::max(top, logit(i));
  for (int64_t i = 0; i < n; i++) sum += phi[i] = std::exp(logit(i) - top);
  for (int64_t i = 0; i < n; i++) phi[i] /= sum;
}

// p (g - p.g), the gradient of the logits of a softmax.
std::vector<double> softmax_backward(int64_t n, const double* p, const double* g) {
  double dot = 0;
  for (int64_t i = 0; i < n; i++) dot += p[i] * g[i];
  std::vector<double> out(n);
  for (int64_t i = 0; i < n; i++) out[i] = p[i] * (g[i] - dot);
  return out;
}

// y = x W + b and |x|^2 of one row.
double project(const double* x, const std::vector<double>& weight, const std::vector<double>& bias,
               int64_t dim, double* y) {
  const int64_t width = static_cast<int64_t>(bias.size());
  double norm = 0;
  for (int64_t e = 0; e < width; e++) y[e] = bias[e];
  for (int64_t d = 0; d < dim; d++) {
    norm += x[d] * x[d];
    for (int64_t e = 0; e < width; e++) y[e] += x[d] * weight[d * width + e];
  }
  return norm;
}

}  // namespace

void map_row(FeatureMap map, int64_t width, const double* y, double square_norm, double* phi) {
  switch (map) {
    case FeatureMap::kExp:
      for (int64_t e = 0; e < width; e++) {
        phi[e] = std::exp(y[e]);
        phi[width + e] = std::exp(-y[e]);
      }
      return;
    case FeatureMap::kSoftmax:
      softmax_row(width, width, 1, y, phi);
      softmax_row(width, width, -1, y, phi + width);
      return;
    case FeatureMap::kSoftmaxJoint:
      softmax_row(2 * width, width, 2, y, phi);
      return;
    case FeatureMap::kElu:
      for (int64_t e = 0; e < width; e++) phi[e] = y[e] > 0 ? 1 + y[e] : std::exp(y[e]);
      return;
    case FeatureMap::kRelu:
      for (int64_t e = 0; e < width; e++) phi[e] = std::max(y[e], 0.0);
      return;
    case FeatureMap::kTaylor:
      phi[0] = 1;
      for (int64_t i = 0; i < width; i++) {
        phi[1 + i] = y[i];
        for (int64_t j = 0; j < width; j++) {
          phi[1 + width + i * width + j] = y[i] * y[j] / std::numbers::sqrt2;
        }
      }
      return;
    case FeatureMap::kExpHalf:
      for (int64_t e = 0; e < width; e++) phi[e] = std::exp(y[e]);
      return;
    case FeatureMap::kPerformer:
      for (int64_t e = 0; e < width; e++) {
        phi[e] = std::exp(y[e] - square_norm / 2) / std::sqrt(static_cast<double>(width));
      }
      return;
  }
}

double map_row_backward(FeatureMap map, int64_t width, const double* y, const double* phi,
                        const double* grad_phi, double* grad_y) {
  const double* g = grad_phi;
  double along_x = 0;
  switch (map) {
    case FeatureMap::kExp:
      for (int64_t e = 0; e < width; e++) {
        grad_y[e] = g[e] * phi[e] - g[width + e] * phi[width + e];
      }
      break;
    case FeatureMap::kSoftmax: {
      const std::vector<double> lo = softmax_backward(width, phi, g);
      const std::vector<double> hi = softmax_backward(width, phi + width, g + width);
      for (int64_t e = 0; e < width; e++) grad_y[e] = lo[e] - hi[e];
      break;
    }
    case FeatureMap::kSoftmaxJoint: {
      const std::vector<double> both = softmax_backward(2 * width, phi, g);
      for (int64_t e = 0; e < width; e++) grad_y[e] = 2 * (both[e] - both[width + e]);
      break;
    }
    case FeatureMap::kElu:
      for (int64_t e = 0; e < width; e++) grad_y[e] = y[e] > 0 ? g[e] : g[e] * phi[e];
      break;
    case FeatureMap::kRelu:
      for (int64_t e = 0; e < width; e++) grad_y[e] = y[e] > 0 ? g[e] : 0;
      break;
    case FeatureMap::kTaylor: {
      const double* second = g + 1 + width;
      for (int64_t i = 0; i < width; i++) {
        double sum = 0;
        for (int64_t j = 0; j < width; j++) {
          sum += (second[i * width + j] + second[j * width + i]) * y[j];
        }
        grad_y[i] = g[1 + i] + sum / std::numbers::sqrt2;
      }
      break;
    }
    case FeatureMap::kExpHalf:
      for (int64_t e = 0; e < width; e++) grad_y[e] = g[e] * phi[e];
      break;
    case FeatureMap::kPerformer:
      for (int64_t e = 0; e < width; e++) {
        grad_y[e] = g[e] * phi[e];
        along_x -= grad_y[e];
      }
      break;
  }
  return along_x;
}

void hedgehog_features_forward(const FeaturesForward& p) {
  const int64_t num_features = feature_width(p.map, p.width);
  parallel_for(p.batch * p.heads, [&](int64_t task, int64_t) {
    const int64_t b = task / p.heads, h = task % p.heads;
    const std::vector<double> weight = load_block(p.dtype, p.weight, h, p.dim * p.width),
                              bias = load_block(p.dtype, p.bias, h, p.width),
                              x = load_rows(p.dtype, p.x, b, h, p.rows, p.dim);
    std::vector<double> y(p.width), phi(p.rows * num_features);
    for (int64_t s = 0; s < p.rows; s++) {
      const double norm = project(x.data() + s * p.dim, weight, bias, p.dim, y.data());
      map_row(p.map, p.width, y.data(), norm, phi.data() + s * num_features);
    }
    store_rows(p.dtype, phi, p.phi, b, h, p.rows, num_features);
  });
}

void hedgehog_features_backward(const FeaturesBackward& p) {
  const int64_t num_features = feature_width(p.map, p.width);
  parallel_for(p.heads, [&](int64_t h, int64_t) {
    const std::vector<double> weight = load_block(p.dtype, p.weight, h, p.dim * p.width),
                              bias = load_block(p.dtype, p.bias, h, p.width);
    std::vector<double> y(p.width), dy(p.width), phi(num_features);
    std::vector<double> dw(p.dim * p.width), db(p.width);
    for (int64_t b = 0; b < p.batch; b++) {
      const std::vector<double> x = load_rows(p.dtype, p.x, b, h, p.rows, p.dim),
                                dphi = load_rows(p.dtype, p.grad_phi, b, h, p.rows, num_features);
      std::vector<double> dx(p.rows * p.dim);
      for (int64_t s = 0; s < p.rows; s++) {
        const double* row = x.data() + s * p.dim;
        const double norm = project(row, weight, bias, p.dim, y.data());
        map_row(p.map, p.width, y.data(), norm, phi.data());
        const double along_x = map_row_backward(p.map, p.width, y.data(), phi.data(),
                                                dphi.data() + s * num_features, dy.data());
        for (int64_t e = 0; e < p.width; e++) db[e] += dy[e];
        for (int64_t d = 0; d < p.dim; d++) {
          double& sum = dx[s * p.dim + d];
          sum = along_x * row[d];
          for (int64_t e = 0; e < p.width; e++) {
            sum += dy[e] * weight[d * p.width + e];
            dw[d * p.width + e] += dy[e] * row[d];
          }
        }
      }
      store_rows(p.dtype, dx, p.grad_x, b, h, p.rows, p.dim);
    }
    store_block(p.dtype, dw, p.grad_weight, h);
    store_block(p.dtype, db, p.grad_bias, h);
  });
}

}  // namespace hedgerow::kernels::reference
