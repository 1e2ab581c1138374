// The fast feature maps against the reference, on every SIMD target.
#include <gtest/gtest.h>

#include "hedgerow/kernels/simd.h"
#include "kernels/linear/linear_case.h"
#include "testing/simd_guard.h"
#include "testing/tolerance.h"

namespace hedgerow::kernels::linear_test {
namespace {

using testing_support::kBFloat16Eps;
using testing_support::kFloat32Eps;

struct FeatureCase {
  FeatureMap map;
  DType dtype = DType::kFloat32;
  int64_t B = 2, H = 3, S = 70, D = 16, E = 16;
};

void check(const FeatureCase& c) {
  const int64_t F = feature_width(c.map, c.E);
  Array x = random_array(c.dtype, c.B * c.H * c.S * c.D, 1, 1);
  Array w = random_array(c.dtype, c.H * c.D * c.E, 2, 1 / std::sqrt(1.0 * c.D));
  Array bias = random_array(c.dtype, c.H * c.E, 3, 0.3);
  Array g = random_array(c.dtype, c.B * c.H * c.S * F, 4, 1);
  auto run = [&](bool use_reference) {
    std::vector<Array> out;
    Array phi(c.dtype, c.B * c.H * c.S * F), dx(c.dtype, x.size), dw(c.dtype, w.size),
        db(c.dtype, bias.size);
    FeaturesForward f;
    FeaturesBackward b;
    auto fill = [&](auto& p) {
      p.dtype = c.dtype;
      p.map = c.map;
      p.batch = c.B;
      p.heads = c.H;
      p.rows = c.S;
      p.dim = c.D;
      p.width = c.E;
      p.x = tensor(x, false, c.H, c.S, c.D);
      p.weight = w.data();
      p.bias = bias.data();
    };
    fill(f);
    f.phi = mut_tensor(phi, false, c.H, c.S, F);
    use_reference ? reference::hedgehog_features_forward(f) : hedgehog_features_forward(f);
    fill(b);
    b.grad_phi = tensor(g, false, c.H, c.S, F);
    b.grad_x = mut_tensor(dx, false, c.H, c.S, c.D);
    b.grad_weight = dw.data();
    b.grad_bias = db.data();
    use_reference ? reference::hedgehog_features_backward(b) : hedgehog_features_backward(b);
    return std::vector<Array>{phi, dx, dw, db};
  };
  const std::vector<Array> got = run(false), want = run(true);
  const double eps = c.dtype == DType::kBFloat16 ? kBFloat16Eps : 4 * kFloat32Eps;
  for (size_t i = 0; i < got.size(); i++) {
    const double tolerance =
        4 * eps * want[i].max_abs() * (i == 0 ? 8 : std::sqrt(1.0 * c.B * c.S + F));
    for (int64_t j = 0; j < got[i].size; j++) {
      ASSERT_NEAR(got[i].get(j), want[i].get(j), tolerance)
          << feature_map_name(c.map) << " output " << i << " at " << j << " " << simd_target();
    }
  }
}

class EveryTarget : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryTarget, FeaturesEqualReference) {
  testing_support::SimdGuard guard(GetParam());
  for (int i = 0; i < 8; i++) {
    FeatureCase c{static_cast<FeatureMap>(i)};
    check(c);
    for (int64_t S : {0, 1, 65}) {
      c.S = S;
      c.D = 13;
      c.E = 11;
      check(c);
    }
    c.dtype = DType::kBFloat16;
    check(c);
    c.B = 11;  // more sequences than partial sums
    c.H = 1;
    c.dtype = DType::kFloat32;
    check(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Simd, EveryTarget, ::testing::ValuesIn(simd_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hedgerow::kernels::linear_test
