// Fused softmax attention against its definition, on every target.
#include "hedgerow/kernels/softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hedgerow/kernels/simd.h"
#include "testing/attention_data.h"
#include "testing/simd_guard.h"
#include "testing/tolerance.h"

namespace hedgerow::kernels {
namespace {

using testing_support::attention_cases;
using testing_support::AttentionCase;
using testing_support::AttentionData;
using testing_support::HostTensor;
using testing_support::MaskForm;
using testing_support::SimdGuard;
using testing_support::ThreadGuard;

constexpr float kInf = std::numeric_limits<float>::infinity();

void run(AttentionData& x) {
  softmax_attention_forward(x.params(), x.out.mut(), x.lse.data());
  softmax_attention_backward(x.params(), x.gradients());
}
void run_reference(AttentionData& x) {
  softmax_attention_forward_reference(x.params(), x.out.mut(), x.lse.data());
  softmax_attention_backward_reference(x.params(), x.gradients());
}

// Largest size of a visible score without its mask, for tolerances.
double score_size(const AttentionData& x) {
  const AttentionCase& c = x.c;
  double size = 0;
  for (int64_t b = 0; b < c.batch; b++) {
    for (int64_t h = 0; h < c.heads; h++) {
      for (int64_t t = 0; t < c.queries; t++) {
        for (int64_t s = 0; s < c.keys; s++) {
          double dot = 0;
          for (int64_t d = 0; d < c.width; d++) {
            dot += x.q.get(b, h, t, d) * x.k.get(b, h / (c.heads / c.kv_heads), s, d);
          }
          size = std::max(size, std::fabs(dot) * x.params().scale);
        }
      }
    }
  }
  return size;
}

// A score errs by eps * sqrt(D) * its size, a weight by that much of itself; sums over keys or
// queries add eps * sqrt(n). Gradients are compared relative to their largest entry.
double relative_error_bound(const AttentionData& x, double size) {
  const AttentionCase& c = x.c;
  const int64_t n = c.width + c.value_width + c.keys + c.queries * (c.heads / c.kv_heads);
  return testing_support::sum_tolerance(n, 1.0 + size);
}

// Dropout, masks and cancellation can leave gradients far smaller than their terms.
void expect_close(const char* what, const HostTensor& got, const HostTensor& want, double bound) {
  EXPECT_LE(got.max_difference(want), bound * std::max(1.0, want.max_abs())) << what;
}

class SoftmaxCase : public ::testing::TestWithParam<AttentionCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, SoftmaxCase, ::testing::ValuesIn(attention_cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(SoftmaxCase, EqualsTheDefinitionOnEveryTarget) {
  for (bool rows_first : {false, true}) {
    AttentionData want(GetParam(), DType::kFloat32, rows_first);
    run_reference(want);
    const double bound = relative_error_bound(want, score_size(want));
    for (const std::string& target : simd_targets()) {
      SCOPED_TRACE(target);
      SimdGuard guard(target);
      AttentionData got(GetParam(), DType::kFloat32, rows_first);
      run(got);
      expect_close("out", got.out, want.out, bound);
      expect_close("dq", got.dq, want.dq, bound);
      expect_close("dk", got.dk, want.dk, bound);
      expect_close("dv", got.dv, want.dv, bound);
      for (size_t i = 0; i < want.lse.size(); i++) {
        if (want.lse[i] == -kInf) {
          ASSERT_EQ(got.lse[i], -kInf) << i;
        } else {
          ASSERT_NEAR(got.lse[i], want.lse[i], bound * std::max(1.0f, std::fabs(want.lse[i]))) << i;
        }
      }
      double largest = 1.0;
      for (float g : want.mask.grad) largest = std::max<double>(largest, std::fabs(g));
      for (size_t i = 0; i < want.mask.grad.size(); i++) {
        ASSERT_NEAR(got.mask.grad[i], want.mask.grad[i], bound * largest) << "dmask " << i;
      }
    }
  }
}

// bfloat16 in and out: sums are float32, so that only rounding the results (and, in the backward,
// the saved output) differs from the definition on the same inputs.
TEST_P(SoftmaxCase, BFloat16KeepsFloat32Sums) {
  AttentionData want(GetParam(), DType::kBFloat16), got(GetParam(), DType::kBFloat16);
  run_reference(want);
  run(got);
  const double bound = testing_support::sum_tolerance(4, 1.0, testing_support::kBFloat16Eps);
  expect_close("out", got.out, want.out, bound);
  expect_close("dq", got.dq, want.dq, bound);
  expect_close("dk", got.dk, want.dk, bound);
  expect_close("dv", got.dv, want.dv, bound);
}

TEST_P(SoftmaxCase, ThreadsChangeNothing) {
  AttentionData one(GetParam());
  {
    ThreadGuard guard(1);
    run(one);
  }
  for (int64_t threads : {2, 3}) {
    ThreadGuard guard(threads);
    AttentionData many(GetParam());
    run(many);
    EXPECT_TRUE(many.out.same_bits(one.out));
    EXPECT_TRUE(many.dq.same_bits(one.dq));
    EXPECT_TRUE(many.dk.same_bits(one.dk));
    EXPECT_TRUE(many.dv.same_bits(one.dv));
    EXPECT_EQ(many.lse, one.lse);
    EXPECT_EQ(many.mask.grad, one.mask.grad);
  }
}

TEST(Softmax, KeyRangesOfTheBackwardAgreeForAnyThreads) {
  for (bool causal : {false, true}) {
    const AttentionCase c{"long", 1, 1, 1, 1100, 1700, 16, 24, causal};
    AttentionData want(c), one(c), three(c);
    run_reference(want);
    run(one);
    {
      ThreadGuard guard(3);
      run(three);
    }
    const double bound = relative_error_bound(want, score_size(want));
    expect_close("dq", one.dq, want.dq, bound);
    expect_close("dk", one.dk, want.dk, bound);
    EXPECT_TRUE(three.dq.same_bits(one.dq));
    EXPECT_TRUE(three.dk.same_bits(one.dk));
    EXPECT_TRUE(three.dv.same_bits(one.dv));
  }
}

// What the mask excludes holds NaN or Inf; results must be those of zeros there, bit for bit.
TEST(Softmax, ExcludedKeysAndValuesAreNotRead) {
  AttentionCase c{"poison", 3, 2, 1, 150, 150, 32, 40, false, MaskForm::kKeyPadding};
  for (bool causal : {false, true}) {
    c.is_causal = causal;
    for (const std::string& target : simd_targets()) {
      SimdGuard guard(target);
      AttentionData clean(c), poisoned(c);
      for (int64_t b = 1; b < c.batch; b++) {
        for (int64_t s = c.keys - b * (c.keys / 3); s < c.keys; s++) {
          clean.k.set_row(b, 0, s, 0.0);
          clean.v.set_row(b, 0, s, 0.0);
          poisoned.k.set_row(b, 0, s, s % 2 ? std::nan("") : kInf);
          poisoned.v.set_row(b, 0, s, s % 3 ? std::nan("") : -kInf);
        }
      }
      run(clean);
      run(poisoned);
      EXPECT_TRUE(poisoned.out.same_bits(clean.out)) << target;
      EXPECT_TRUE(poisoned.dq.same_bits(clean.dq)) << target;
      EXPECT_TRUE(poisoned.dk.same_bits(clean.dk)) << target;
      EXPECT_TRUE(poisoned.dv.same_bits(clean.dv)) << target;
      EXPECT_FALSE(std::isnan(clean.dv.max_abs()));
    }
  }
}

// A key that holds NaN spoils the queries that see it and no other.
TEST(Softmax, CausalQueriesDoNotReadTheFuture) {
  const AttentionCase c{"future", 1, 1, 1, 140, 140, 32, 32, true};
  const int64_t bad = 100;
  for (const std::string& target : simd_targets()) {
    SimdGuard guard(target);
    for (bool in_value : {false, true}) {
      AttentionData x(c);
      (in_value ? x.v : x.k).set_row(0, 0, bad, std::nan(""));
      run(x);
      for (int64_t t = 0; t < c.queries; t++) {
        EXPECT_EQ(std::isnan(x.out.get(0, 0, t, 0)), t >= bad) << target << " " << t;
        EXPECT_EQ(std::isnan(x.dq.get(0, 0, t, 0)), t >= bad) << target << " " << t;
      }
    }
  }
}

TEST(Softmax, QueriesThatSeeNothingAreExactlyZero) {
  for (MaskForm form : {MaskForm::kBool, MaskForm::kFloat}) {
    const AttentionCase c{"empty_rows", 1, 2, 2, 70, 70, 32, 32, false, form};
    for (const std::string& target : simd_targets()) {
      SimdGuard guard(target);
      AttentionData x(c);
      for (int64_t t = 3; t < c.queries; t += 7) {  // the rows that HostMask leaves empty
        for (int64_t h = 0; h < c.heads; h++) {
          x.q.set_row(0, h, t, std::nan(""));
          x.grad_out.set_row(0, h, t, std::nan(""));
        }
      }
      run(x);
      EXPECT_FALSE(std::isnan(x.dk.max_abs()));
      EXPECT_FALSE(std::isnan(x.dv.max_abs()));
      for (int64_t t = 3; t < c.queries; t += 7) {
        EXPECT_EQ(x.lse[t], -kInf);
        for (int64_t d = 0; d < c.width; d++) {
          EXPECT_EQ(x.out.get(0, 1, t, d), 0.0);
          EXPECT_EQ(x.dq.get(0, 1, t, d), 0.0);
        }
      }
    }
  }
}

// Scores near -1e5 that float32 holds exactly: the differences count, not the size.
TEST(Softmax, VeryLowScoresStillCompete) {
  const double keys[8] = {
      -110208.0625, -110189.8125, -110206.5, -110208.4375, -110192.625, 0, 1, 2};
  const AttentionCase c{"low", 1, 1, 1, 8, 8, 1, 8, true};
  for (const std::string& target : simd_targets()) {
    SimdGuard guard(target);
    AttentionData want(c), got(c);
    for (AttentionData* x : {&want, &got}) {
      for (int64_t i = 0; i < 8; i++) {
        x->q.set(0, 0, i, 0, 1.0);
        x->k.set(0, 0, i, 0, keys[i]);
      }
    }
    run_reference(want);
    run(got);
    // dq and dk multiply weights' errors by keys of 1e5
    EXPECT_LE(got.out.max_difference(want.out), 2e-5) << target;
    EXPECT_LE(got.dv.max_difference(want.dv), 2e-5) << target;
    EXPECT_LE(got.dk.max_difference(want.dk), 2e-5) << target;
  }
}

// Later keys beat the first block's reference by far more than its headroom.
TEST(Softmax, ReferencesRiseWhenScoresRunAway) {
  const AttentionCase c{"runaway", 1, 1, 1, 70, 900, 4, 8};
  for (const std::string& target : simd_targets()) {
    SimdGuard guard(target);
    AttentionData want(c), got(c);
    for (AttentionData* x : {&want, &got}) {
      for (int64_t s = 0; s < c.keys; s++) {
        for (int64_t d = 0; d < c.width; d++)
          x->k.set(0, 0, s, d, x->k.get(0, 0, s, d) * (1 + s / 4));
      }
    }
    run_reference(want);
    run(got);
    const double bound = relative_error_bound(want, score_size(want));
    expect_close("out", got.out, want.out, bound);
    expect_close("dv", got.dv, want.dv, bound);
  }
}

TEST(Softmax, Float64IsTheReference) {
  const AttentionCase c{"float64", 1, 2, 1, 9, 12, 5, 7, true};
  AttentionData want(c, DType::kFloat64), got(c, DType::kFloat64);
  run_reference(want);
  run(got);
  EXPECT_TRUE(got.out.same_bits(want.out));
  EXPECT_TRUE(got.dq.same_bits(want.dq));
}

TEST(Softmax, LseMayBeLeftOut) {
  AttentionData with(attention_cases()[2]), without(attention_cases()[2]);
  softmax_attention_forward(with.params(), with.out.mut(), with.lse.data());
  softmax_attention_forward(without.params(), without.out.mut(), nullptr);
  EXPECT_TRUE(with.out.same_bits(without.out));
}

// The definition's own backward, by central differences in float64.
class Differences : public ::testing::TestWithParam<AttentionCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, Differences,
    ::testing::Values(AttentionCase{"dense", 1, 2, 1, 3, 4, 3, 2},
                      AttentionCase{"causal", 1, 1, 1, 4, 3, 2, 2, true},
                      AttentionCase{"mask_bool", 1, 2, 2, 8, 5, 2, 3, false, MaskForm::kBool},
                      AttentionCase{"mask_pair", 2, 2, 1, 3, 4, 2, 2, true,
                                    MaskForm::kFloatPerPair},
                      AttentionCase{"mask_full", 1, 2, 1, 4, 4, 2, 2, false, MaskForm::kFloat},
                      AttentionCase{"dropped", 1, 2, 1, 3, 5, 2, 2, false, MaskForm::kNone, 0.4}),
    [](const auto& info) { return info.param.name; });

double loss(AttentionData& x) {
  softmax_attention_forward_reference(x.params(), x.out.mut(), nullptr);
  double sum = 0;
  x.out.for_each([&](int64_t b, int64_t h, int64_t r, int64_t d) {
    sum += x.out.get(b, h, r, d) * x.grad_out.get(b, h, r, d);
  });
  return sum;
}

TEST_P(Differences, MatchTheReferenceBackward) {
  AttentionData x(GetParam(), DType::kFloat64);
  run_reference(x);
  const double step = 1e-5;  // error step^2 + 1e-16 / step
  const auto check = [&](HostTensor AttentionData::*input, HostTensor AttentionData::*grad) {
    (x.*input).for_each([&](int64_t b, int64_t h, int64_t r, int64_t d) {
      const double at = (x.*input).get(b, h, r, d);
      (x.*input).set(b, h, r, d, at + step);
      const double up = loss(x);
      (x.*input).set(b, h, r, d, at - step);
      const double down = loss(x);
      (x.*input).set(b, h, r, d, at);
      EXPECT_NEAR((x.*grad).get(b, h, r, d), (up - down) / (2 * step), 1e-8);
    });
  };
  check(&AttentionData::q, &AttentionData::dq);
  check(&AttentionData::k, &AttentionData::dk);
  check(&AttentionData::v, &AttentionData::dv);
  for (size_t i = 0; i < x.mask.add.size(); i++) {
    const float at = x.mask.add[i];
    if (at == -kInf) {
      EXPECT_EQ(x.mask.grad[i], 0.0f);
      continue;
    }
    const float coarse = 0x1p-8f;  // masks are float32
    x.mask.add[i] = at + coarse;
    const double high = x.mask.add[i], up = loss(x);
    x.mask.add[i] = at - coarse;
    const double low = x.mask.add[i], down = loss(x);
    x.mask.add[i] = at;
    EXPECT_NEAR(x.mask.grad[i], (up - down) / (high - low), 1e-4) << i;
  }
}

}  // namespace
}  // namespace hedgerow::kernels
