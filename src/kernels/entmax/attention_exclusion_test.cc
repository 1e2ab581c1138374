// What entmax attention must not read, and rows at the ends of the float range; on every target.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hedgerow/kernels/entmax_attention.h"
#include "hedgerow/kernels/simd.h"
#include "kernels/entmax/attention_case.h"
#include "testing/simd_guard.h"

namespace hedgerow::kernels {
namespace {

using testing_support::AttentionCase;
using testing_support::EntmaxData;
using testing_support::MaskForm;
using testing_support::SimdGuard;

constexpr float kInf = std::numeric_limits<float>::infinity();

// What the mask excludes holds NaN or Inf; results must be those of zeros there, bit for bit. Heads
// have alphas of every kind: dense rows, lists, rows in double.
TEST(EntmaxExclusion, ExcludedKeysAndValuesAreNotRead) {
  AttentionCase c{"poison", 3, 10, 5, 150, 150, 32, 40, false, MaskForm::kKeyPadding};
  for (bool causal : {false, true}) {
    c.is_causal = causal;
    for (const std::string& target : simd_targets()) {
      SCOPED_TRACE(target);
      SimdGuard guard(target);
      EntmaxData clean(c), poisoned(c);
      for (int64_t b = 1; b < c.batch; b++) {
        for (int64_t s = c.keys - b * (c.keys / 3); s < c.keys; s++) {
          for (int64_t g = 0; g < c.kv_heads; g++) {
            clean.k.set_row(b, g, s, 0.0);
            clean.v.set_row(b, g, s, 0.0);
            poisoned.k.set_row(b, g, s, s % 2 ? std::nan("") : kInf);
            poisoned.v.set_row(b, g, s, s % 3 ? std::nan("") : -kInf);
          }
        }
      }
      clean.run();
      poisoned.run();
      EXPECT_TRUE(poisoned.out.same_bits(clean.out));
      EXPECT_TRUE(poisoned.dq.same_bits(clean.dq));
      EXPECT_TRUE(poisoned.dk.same_bits(clean.dk));
      EXPECT_TRUE(poisoned.dv.same_bits(clean.dv));
      EXPECT_EQ(poisoned.dalpha, clean.dalpha);
      EXPECT_FALSE(std::isnan(clean.dv.max_abs()));
    }
  }
}

// A value without weight is not read either: that is what sparse means.
TEST(EntmaxExclusion, ValuesOffTheSupportAreNotRead) {
  const AttentionCase c{"off_support", 1, 4, 4, 60, 200, 32, 32};
  for (const std::string& target : simd_targets()) {
    SimdGuard guard(target);
    EntmaxData clean(c, 5), poisoned(c, 5);  // 1.5, 1.9, 2, 3
    const int64_t hidden = 77;
    for (EntmaxData* x : {&clean, &poisoned}) {
      for (int64_t h = 0; h < c.heads; h++) {
        x->k.set_row(0, h, hidden, 0.0);  // the score is 0, and others are far above
        for (int64_t t = 0; t < c.queries; t++) {
          for (int64_t d = 0; d < c.width; d++) x->q.set(0, h, t, d, 8 * x->q.get(0, h, t, d));
        }
        x->v.set_row(0, h, hidden, x == &clean ? 0.0 : std::nan(""));
      }
    }
    clean.run();
    poisoned.run();
    EXPECT_TRUE(poisoned.out.same_bits(clean.out)) << target;
    EXPECT_TRUE(poisoned.dq.same_bits(clean.dq)) << target;
    EXPECT_FALSE(std::isnan(poisoned.out.max_abs())) << target;
  }
}

// A value that holds NaN spoils the queries that give it weight and no other.
TEST(EntmaxExclusion, CausalQueriesDoNotReadTheFuture) {
  const AttentionCase c{"future", 1, 3, 3, 140, 140, 32, 32, true};
  const int64_t bad = 100;
  for (const std::string& target : simd_targets()) {
    SimdGuard guard(target);
    EntmaxData x(c);
    x.alpha = {1.0, 1.01, 1.5};
    for (int64_t h = 0; h < c.heads; h++) x.v.set_row(0, h, bad, std::nan(""));
    x.run();
    for (int64_t t = 0; t < c.queries; t++) {
      EXPECT_EQ(std::isnan(x.out.get(0, 0, t, 0)), t >= bad) << target << " " << t;
      EXPECT_EQ(std::isnan(x.dq.get(0, 0, t, 0)), t >= bad) << target << " " << t;
      if (t >= bad) continue;
      EXPECT_FALSE(std::isnan(x.out.get(0, 1, t, 0) + x.out.get(0, 2, t, 0))) << target << t;
      EXPECT_FALSE(std::isnan(x.dq.get(0, 1, t, 0) + x.dq.get(0, 2, t, 0))) << target << t;
    }
  }
}

TEST(EntmaxExclusion, QueriesThatSeeNothingAreExactlyZero) {
  for (MaskForm form : {MaskForm::kBool, MaskForm::kFloat}) {
    const AttentionCase c{"empty_rows", 1, 5, 5, 70, 70, 32, 32, false, form};
    for (const std::string& target : simd_targets()) {
      SimdGuard guard(target);
      EntmaxData x(c);
      x.alpha = {1.0, 1.2, 1.5, 2.0, 4.0};
      for (int64_t t = 3; t < c.queries; t += 7) {  // the rows that HostMask leaves empty
        for (int64_t h = 0; h < c.heads; h++) {
          x.q.set_row(0, h, t, std::nan(""));
          x.grad_out.set_row(0, h, t, std::nan(""));
        }
      }
      x.run();
      EXPECT_FALSE(std::isnan(x.dk.max_abs()));
      EXPECT_FALSE(std::isnan(x.dv.max_abs()));
      for (double g : x.dalpha) EXPECT_FALSE(std::isnan(g));
      for (int64_t h = 0; h < c.heads; h++) {
        for (int64_t t = 3; t < c.queries; t += 7) {
          for (int64_t i = 0; i < kEntmaxRowStats; i++) {
            EXPECT_EQ(x.stats[(h * c.queries + t) * kEntmaxRowStats + i], 0.0f);
          }
          for (int64_t d = 0; d < c.width; d++) {
            EXPECT_EQ(x.out.get(0, h, t, d), 0.0);
            EXPECT_EQ(x.dq.get(0, h, t, d), 0.0);
          }
        }
      }
    }
  }
}

// Scores near -1e5 that float32 holds exactly: the differences count, not the size.
TEST(EntmaxExclusion, VeryLowScoresStillCompete) {
  const double keys[8] = {
      -110208.0625, -110189.8125, -110189.5, -110189.4375, -110192.625, 0, 1, 2};
  for (const double alpha : testing_support::entmax_alphas()) {
    const AttentionCase c{"low", 1, 1, 1, 8, 8, 1, 8, true};
    for (const std::string& target : simd_targets()) {
      SCOPED_TRACE(target + ", alpha " + std::to_string(alpha));
      SimdGuard guard(target);
      EntmaxData want(c), got(c);
      for (EntmaxData* x : {&want, &got}) {
        x->alpha = {alpha};
        for (int64_t i = 0; i < 8; i++) {
          x->q.set(0, 0, i, 0, 1.0);
          x->k.set(0, 0, i, 0, keys[i]);
        }
      }
      want.run_reference();
      got.run();
      EXPECT_LE(got.out.max_difference(want.out), 1e-6);
      EXPECT_LE(got.dv.max_difference(want.dv), 2e-6);
      EXPECT_LE(got.dk.max_difference(want.dk), 1e-5 * std::max(1.0, want.dk.max_abs()));
    }
  }
}

// A NaN score that is not excluded gives undefined rows; it must not hang or leave the buffers.
TEST(EntmaxExclusion, NanScoresEnd) {
  const AttentionCase c{"nan", 1, 10, 10, 50, 300, 16, 16};
  for (const std::string& target : simd_targets()) {
    SimdGuard guard(target);
    EntmaxData x(c);
    for (int64_t h = 0; h < c.heads; h++) x.k.set_row(0, h, 33, std::nan(""));
    x.run();
    for (size_t i = 2; i < x.stats.size(); i += kEntmaxRowStats) {
      ASSERT_GE(x.stats[i], 0.0f);
      ASSERT_LE(x.stats[i], 300.0f);
    }
  }
}

}  // namespace
}  // namespace hedgerow::kernels
