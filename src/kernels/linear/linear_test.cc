// The fast forward and backward against the reference, on every SIMD target.
#include "hedgerow/kernels/linear.h"

#include <gtest/gtest.h>

#include "hedgerow/kernels/simd.h"
#include "kernels/linear/linear_case.h"
#include "testing/simd_guard.h"
#include "testing/tolerance.h"

namespace hedgerow::kernels::linear_test {
namespace {

using testing_support::kBFloat16Eps;
using testing_support::kFloat32Eps;
using testing_support::SimdGuard;
using testing_support::ThreadGuard;

// Largest |y| bound of the case: sum_d |x_d| |W_de| + |b_e|, estimated from the largest row.
double largest_y(const Case& c, const Inputs& in) {
  if (c.given) return 0;
  double top = 0;
  for (const auto& [x, w] : {std::pair(&in.q, &in.wq), std::pair(&in.k, &in.wk)}) {
    for (int64_t r = 0; r + c.D <= x->size; r += c.D) {
      double norm = 0;
      for (int64_t i = 0; i < c.D; i++) norm += std::pow(x->get(r + i), 2);
      if (!std::isnan(norm)) top = std::max(top, std::sqrt(norm));
    }
  }
  return 4 * top + (c.bias ? 1 : 0);  // |W's column| is about 1
}

// Relative error of a weight: that of its exponent, which float32 holds to 2^-24 |y|, and of sums.
double weight_error(const Case& c, const Inputs& in) {
  const double sums = std::sqrt(static_cast<double>(std::max(c.S, c.T) + c.F() + c.Dv));
  const double condition = c.map == FeatureMap::kTaylor && c.state ? 16 : 1;  // sum |w| / |sum w|
  return condition * 4 * kFloat32Eps * (largest_y(c, in) + sums);
}

void expect_near(const Array& got, const Array& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size, want.size);
  double worst = 0;
  for (int64_t i = 0; i < got.size; i++) {
    ASSERT_TRUE(std::isfinite(got.get(i))) << what << " at " << i;
    worst = std::max(worst, std::abs(got.get(i) - want.get(i)));
  }
  EXPECT_LE(worst, tolerance) << what;
}

// States are equal as s * exp(m).
void expect_same_state(const Case& c, const Inputs& in, const Outputs& got, const Outputs& want) {
  const int64_t Dv = c.Dv;
  const double error = 2 * weight_error(c, in);
  for (int64_t f = 0; f < want.z.size; f++) {
    const double by = std::exp(got.m.get(f) - want.m.get(f)), z = want.z.get(f);
    ASSERT_TRUE(std::isfinite(got.z.get(f)));
    const double cancelled = c.map == FeatureMap::kTaylor ? c.S : 0;  // its features have signs
    EXPECT_NEAR(got.z.get(f) * by, z, error * (std::abs(z) + cancelled)) << c.name << " z " << f;
    for (int64_t j = f * Dv; j < (f + 1) * Dv; j++) {
      EXPECT_NEAR(got.s.get(j) * by, want.s.get(j), error * 4 * (std::abs(z) + 4 + cancelled))
          << c.name << " s " << j;
    }
  }
}

void check_forward(const Case& c) {
  Inputs in(c);
  Outputs got, want;
  forward(c, in, want, true);
  forward(c, in, got, false);
  const double rounding = c.dtype == DType::kBFloat16 ? 2 * kBFloat16Eps : 0;
  const double top = std::max(in.v.max_abs(), c.state ? 2 * in.s.max_abs() : 0.0);
  expect_near(got.out, want.out, top * (4 * weight_error(c, in) + rounding),
              c.name + " out " + simd_target());
  expect_same_state(c, in, got, want);
}

// Errors scale with the largest entry, or, where terms cancel (one visible key: g.v + c = 0), with
// the terms, of which `floor` is the size.
void expect_gradients(const Case& c, const Inputs& in, const Outputs& got, const Outputs& want) {
  const double rounding = c.dtype == DType::kBFloat16 ? 8 * kBFloat16Eps : 0;
  const double error = 8 * weight_error(c, in) + rounding;
  const double floor = 0.1;
  const std::string where = c.name + " " + simd_target() + " ";
  expect_near(got.dq, want.dq, error * std::max(want.dq.max_abs(), floor), where + "dq");
  expect_near(got.dk, want.dk, error * std::max(want.dk.max_abs(), floor), where + "dk");
  expect_near(got.dv, want.dv, error * std::max(want.dv.max_abs(), floor), where + "dv");
  if (!c.given) {
    expect_near(got.dwq, want.dwq, error * std::max(want.dwq.max_abs(), floor), where + "dwq");
    expect_near(got.dwk, want.dwk, error * std::max(want.dwk.max_abs(), floor), where + "dwk");
  }
  if (!c.given && c.bias) {
    expect_near(got.dbq, want.dbq, error * std::max(want.dbq.max_abs(), floor), where + "dbq");
    expect_near(got.dbk, want.dbk, error * std::max(want.dbk.max_abs(), floor), where + "dbk");
  }
  if (c.state) {
    expect_near(got.ds, want.ds, error * std::max(want.ds.max_abs(), floor), where + "ds");
    expect_near(got.dz, want.dz, error * std::max(want.dz.max_abs(), floor), where + "dz");
  }
}

void check_backward(const Case& c) {
  for (bool with_final : {false, true}) {
    Inputs in(c);
    Outputs got, want;
    forward(c, in, want, true);
    backward(c, in, want, true, with_final);
    forward(c, in, got, false);
    backward(c, in, got, false, with_final);
    // gradients of the final state are relative to m_out, of which there are many valid ones
    if (with_final) {
      want.m = got.m;
      backward(c, in, want, true, with_final);
    }
    expect_gradients(c, in, got, want);
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  auto add = [&](std::string name, auto change) {
    for (bool causal : {true, false}) {
      Case c;
      c.causal = causal;
      change(c);
      c.name = name + (causal ? " causal" : " full");
      all.push_back(c);
    }
  };
  for (int64_t T : {0, 1, 2, 3, 4, 5, 63, 64, 65, 129, 200}) {
    add("T" + std::to_string(T), [&](Case& c) { c.T = c.S = T; });
  }
  for (double scale : {10.0, 30.0, 1000.0}) {
    add("x" + std::to_string(static_cast<int>(scale)), [&](Case& c) {
      c.scale = scale;
      c.T = c.S = 150;
    });
    add("mask x" + std::to_string(static_cast<int>(scale)), [&](Case& c) {
      c.scale = scale;
      c.T = c.S = 150;
      c.mask = true;
      c.state = true;
    });
  }
  // Every remainder of a step, with references that rise shared and token by token.
  for (int64_t T = 1; T <= 13; T++) {
    for (double scale : {10.0, 30.0, 100.0}) {
      for (int64_t past : {0, 3}) {
        add("short T" + std::to_string(T) + " x" + std::to_string(static_cast<int>(scale)) + " +" +
                std::to_string(past),
            [&](Case& c) {
              c.scale = scale;
              c.T = T;
              c.S = T + past;
              c.B = 6;
              c.H = 4;
              c.D = c.E = 3;
              c.Dv = 4;
            });
      }
    }
  }
  add("T<S", [](Case& c) {
    c.T = 37;
    c.S = 170;
  });
  add("T>S", [](Case& c) {
    c.T = 170;
    c.S = 37;
  });
  add("S=0", [](Case& c) { c.S = 0; });
  add("S=0 state", [](Case& c) {
    c.S = 0;
    c.state = true;
  });
  add("widths", [](Case& c) {
    c.D = 13;
    c.E = 19;
    c.Dv = 37;
    c.bias = true;
  });
  add("wide", [](Case& c) {
    c.D = 64;
    c.E = 64;
    c.Dv = 64;
    c.T = c.S = 130;
  });
  add("80", [](Case& c) {
    c.D = 80;
    c.E = 40;
    c.Dv = 80;
    c.scale = 30;
  });
  add("one", [](Case& c) { c.D = c.E = c.Dv = 1; });
  add("gqa", [](Case& c) {
    c.H = 6;
    c.Hkv = 2;
    c.B = 2;
    c.mask = true;
  });
  add("state", [](Case& c) {
    c.state = true;
    c.H = 4;
  });
  add("state x30", [](Case& c) {
    c.state = true;
    c.scale = 30;
  });
  add("mask", [](Case& c) {
    c.mask = true;
    c.B = 3;
    c.bias = true;
  });
  add("token major", [](Case& c) {
    c.token_major = true;
    c.mask = true;
    c.D = 20;
  });
  add("bf16", [](Case& c) {
    c.dtype = DType::kBFloat16;
    c.mask = true;
    c.state = true;
  });
  add("given", [](Case& c) {
    c.given = true;
    c.D = 24;
    c.mask = true;
  });
  add("given odd", [](Case& c) {
    c.given = true;
    c.D = 23;
    c.Dv = 5;
    c.state = true;
    c.T = 70;
  });
  for (FeatureMap map :
       {FeatureMap::kSoftmax, FeatureMap::kSoftmaxJoint, FeatureMap::kElu, FeatureMap::kRelu,
        FeatureMap::kTaylor, FeatureMap::kExpHalf, FeatureMap::kPerformer}) {
    add(std::string(feature_map_name(map)), [&](Case& c) {
      c.map = map;
      c.E = 13;
      c.bias = true;
    });
    add(std::string(feature_map_name(map)) + " mask state", [&](Case& c) {
      c.map = map;
      c.mask = c.state = true;
      c.D = 9;
      c.E = 16;
      c.Hkv = 1;
    });
  }
  return all;
}

class EveryTarget : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryTarget, ForwardEqualsReference) {
  SimdGuard guard(GetParam());
  for (const Case& c : cases()) check_forward(c);
}

TEST_P(EveryTarget, BackwardEqualsReference) {
  SimdGuard guard(GetParam());
  for (const Case& c : cases()) check_backward(c);
}

INSTANTIATE_TEST_SUITE_P(Simd, EveryTarget, ::testing::ValuesIn(simd_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hedgerow::kernels::linear_test
