// The reference itself: hand-made values, and its backward against finite differences.
#include <gtest/gtest.h>

#include <functional>

#include "kernels/linear/linear_case.h"

namespace hedgerow::kernels::linear_test {
namespace {

constexpr FeatureMap kMaps[] = {
    FeatureMap::kExp,  FeatureMap::kSoftmax, FeatureMap::kSoftmaxJoint, FeatureMap::kElu,
    FeatureMap::kRelu, FeatureMap::kTaylor,  FeatureMap::kExpHalf,      FeatureMap::kPerformer};

TEST(FeatureMaps, NamesAndWidths) {
  for (FeatureMap map : kMaps) EXPECT_EQ(find_feature_map(feature_map_name(map)), map);
  EXPECT_FALSE(find_feature_map("cosine").has_value());
  EXPECT_EQ(feature_width(FeatureMap::kExp, 5), 10);
  EXPECT_EQ(feature_width(FeatureMap::kTaylor, 5), 31);
  EXPECT_EQ(feature_width(FeatureMap::kElu, 5), 5);
  EXPECT_EQ(feature_map_names(),
            "exp, softmax, softmax_joint, elu, relu, taylor, exp_half, performer");
}

TEST(FeatureMaps, ValuesByHand) {
  const double y[2] = {0.5, -1};
  double f[7];
  auto expect = [&](FeatureMap map, std::vector<double> want) {
    reference::map_row(map, 2, y, 1.25, f);
    for (size_t i = 0; i < want.size(); i++) {
      EXPECT_NEAR(f[i], want[i], 1e-12) << feature_map_name(map) << i;
    }
  };
  const double e1 = std::exp(0.5), e2 = std::exp(-1);
  expect(FeatureMap::kExp, {e1, e2, 1 / e1, 1 / e2});
  expect(FeatureMap::kSoftmax, {e1 / (e1 + e2), e2 / (e1 + e2), e2 / (e1 + e2), e1 / (e1 + e2)});
  const double sum = std::exp(1) + std::exp(-2) + std::exp(-1) + std::exp(2);
  expect(FeatureMap::kSoftmaxJoint,
         {std::exp(1) / sum, std::exp(-2) / sum, std::exp(-1) / sum, std::exp(2) / sum});
  expect(FeatureMap::kElu, {1.5, e2});
  expect(FeatureMap::kRelu, {0.5, 0});
  const double r = std::sqrt(0.5);
  expect(FeatureMap::kTaylor, {1, 0.5, -1, 0.25 * r, -0.5 * r, -0.5 * r, r});
  expect(FeatureMap::kExpHalf, {e1, e2});
  expect(FeatureMap::kPerformer, {std::exp(0.5 - 0.625) * r, std::exp(-1 - 0.625) * r});
}

TEST(Reference, OneVisibleKeyReturnsItsValue) {
  Case c;
  c.T = c.S = 1;
  c.dtype = DType::kFloat64;
  Inputs in(c);
  Outputs o;
  forward(c, in, o, true);
  for (int64_t i = 0; i < o.out.size; i++) EXPECT_NEAR(o.out.get(i), in.v.get(i), 1e-12);
}

TEST(Reference, RowsWithoutKeysAreZeroWithZeroGradients) {
  Case c;
  c.T = 5;
  c.S = 2;  // the first three queries see nothing
  for (bool use_reference : {true, false}) {
    Inputs in(c);
    Outputs o;
    forward(c, in, o, use_reference);
    backward(c, in, o, use_reference, false);
    for (int64_t h = 0; h < c.H; h++) {
      for (int64_t i = 0; i < 3 * c.Dv; i++) EXPECT_EQ(o.out.get(h * c.T * c.Dv + i), 0);
      for (int64_t i = 0; i < 3 * c.D; i++) EXPECT_EQ(o.dq.get(h * c.T * c.D + i), 0);
    }
  }
}

// Scalar loss: sum of out * go and of the final state * its gradient, at the state's own m.
double loss(const Case& c, Inputs& in, const Array& m) {
  Outputs o;
  forward(c, in, o, true);
  double sum = 0;
  for (int64_t i = 0; i < o.out.size; i++) sum += o.out.get(i) * in.go.get(i);
  for (int64_t f = 0; f < o.z.size; f++) {
    const double by = std::exp(o.m.get(f) - m.get(f));
    sum += o.z.get(f) * by * in.gz.get(f);
    for (int64_t j = 0; j < c.Dv; j++) sum += o.s.get(f * c.Dv + j) * by * in.gs.get(f * c.Dv + j);
  }
  return sum;
}

void check_differences(Case c) {
  c.dtype = DType::kFloat64;
  Inputs in(c);
  Outputs o;
  forward(c, in, o, true);
  const Array m = o.m;
  backward(c, in, o, true, true);
  auto check = [&](Array& x, const Array& grad, const std::string& what) {
    const double step = 1e-5;
    for (int64_t i = 0; i < x.size; i += 1 + x.size / 40) {
      const double before = x.get(i);
      if (std::isnan(before)) {  // a removed key
        EXPECT_EQ(grad.get(i), 0) << c.name << what;
        continue;
      }
      x.set(i, before + step);
      const double up = loss(c, in, m);
      x.set(i, before - step);
      const double down = loss(c, in, m);
      x.set(i, before);
      EXPECT_NEAR(grad.get(i), (up - down) / (2 * step), 1e-5 * std::max(1.0, grad.max_abs()))
          << c.name << " " << what << " " << i;
    }
  };
  check(in.q, o.dq, "q");
  check(in.k, o.dk, "k");
  check(in.v, o.dv, "v");
  if (!c.given) {
    check(in.wq, o.dwq, "wq");
    check(in.wk, o.dwk, "wk");
  }
  if (!c.given && c.bias) {
    check(in.bq, o.dbq, "bq");
    check(in.bk, o.dbk, "bk");
  }
  if (c.state) {
    check(in.s, o.ds, "s");
    check(in.z, o.dz, "z");
  }
}

TEST(Reference, BackwardIsTheDerivative) {
  for (bool causal : {true, false}) {
    Case c;
    c.causal = causal;
    c.B = 2;
    c.H = 2;
    c.Hkv = 1;
    c.T = 4;
    c.S = 6;
    c.D = 3;
    c.E = 4;
    c.Dv = 2;
    c.bias = c.mask = c.state = true;
    for (FeatureMap map : kMaps) {
      c.map = map;
      c.name = std::string(feature_map_name(map)) + (causal ? " causal" : " full");
      check_differences(c);
    }
    c.given = true;
    c.name = "given";
    check_differences(c);
  }
}

}  // namespace
}  // namespace hedgerow::kernels::linear_test
