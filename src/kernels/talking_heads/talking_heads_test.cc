// Fused talking-heads attention against its definition, on every target.
#include "hedgerow/kernels/talking_heads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hedgerow/kernels/simd.h"
#include "kernels/talking_heads/talking_heads_case.h"
#include "testing/simd_guard.h"
#include "testing/tolerance.h"

namespace hedgerow::kernels {
namespace {

using testing_support::AttentionCase;
using testing_support::AttentionData;
using testing_support::heads_cases;
using testing_support::HeadsCase;
using testing_support::HeadsData;
using testing_support::HostTensor;
using testing_support::HostTerm;
using testing_support::MaskForm;
using testing_support::SimdGuard;
using testing_support::ThreadGuard;

constexpr float kInf = std::numeric_limits<float>::infinity();

// Largest size of a score, for tolerances.
double score_size(const HeadsData& x) {
  double size = 0;
  const int64_t group = x.c.key_kv_heads ? x.c.key_heads / x.c.key_kv_heads : 1;
  x.q.for_each([&](int64_t b, int64_t a, int64_t t, int64_t d) {
    if (d != 0) return;
    for (int64_t s = 0; s < x.c.base.keys; s++) {
      double dot = 0;
      for (int64_t i = 0; i < x.c.base.width; i++) {
        dot += x.q.get(b, a, t, i) * x.k.get(b, a / group, s, i);
      }
      size = std::max(size, std::fabs(dot) * x.params().scale);
    }
  });
  return size;
}

// A score errs by eps * sqrt(D) * its size, a logit by that of Hk scores, a weight by as much of
// itself; sums over heads, keys and queries add eps * sqrt(n). What is compared is relative to the
// largest entry.
double error_bound(const HeadsData& x) {
  const AttentionCase& c = x.c.base;
  const int64_t n = c.width + c.value_width + c.keys + c.queries + x.c.key_heads + c.heads;
  return testing_support::sum_tolerance(n, 1.0 + 2 * score_size(x));
}

void expect_close(const char* what, const HostTensor& got, const HostTensor& want, double bound) {
  EXPECT_LE(got.max_difference(want), bound * std::max(1.0, want.max_abs())) << what;
}
template <typename T>
void expect_close(const char* what, const std::vector<T>& got, const std::vector<T>& want,
                  double bound) {
  double largest = 1.0;
  for (const T x : want) largest = std::max(largest, std::fabs(static_cast<double>(x)));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); i++) {
    ASSERT_NEAR(got[i], want[i], bound * largest) << what << " " << i;
  }
}

void expect_close(const HeadsData& got, const HeadsData& want, double bound) {
  expect_close("out", got.out, want.out, bound);
  expect_close("dq", got.dq, want.dq, bound);
  expect_close("dk", got.dk, want.dk, bound);
  expect_close("dv", got.dv, want.dv, bound);
  expect_close("dlogits_proj", got.logits.grad, want.logits.grad, bound);
  expect_close("dweights_proj", got.weights.grad, want.weights.grad, bound);
  expect_close("dx_logits", got.x_logits.grad, want.x_logits.grad, bound);
  expect_close("dm_logits", got.m_logits.grad, want.m_logits.grad, bound);
  expect_close("dx_weights", got.x_weights.grad, want.x_weights.grad, bound);
  expect_close("dm_weights", got.m_weights.grad, want.m_weights.grad, bound);
  expect_close("dmask", got.mask.grad, want.mask.grad, bound);
  if (!got.c.alpha.empty()) expect_close("dalpha", got.dalpha, want.dalpha, 10 * bound);
}

void expect_same_bits(const HeadsData& a, const HeadsData& b) {
  EXPECT_TRUE(a.out.same_bits(b.out));
  EXPECT_TRUE(a.dq.same_bits(b.dq));
  EXPECT_TRUE(a.dk.same_bits(b.dk));
  EXPECT_TRUE(a.dv.same_bits(b.dv));
  for (HostTerm HeadsData::*term :
       {&HeadsData::logits, &HeadsData::weights, &HeadsData::x_logits, &HeadsData::m_logits,
        &HeadsData::x_weights, &HeadsData::m_weights}) {
    EXPECT_EQ((a.*term).grad, (b.*term).grad);
  }
  EXPECT_EQ(a.mask.grad, b.mask.grad);
  if (!a.c.alpha.empty()) {
    EXPECT_EQ(a.dalpha, b.dalpha);
  }
}

class TalkingHeadsCase : public ::testing::TestWithParam<HeadsCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, TalkingHeadsCase, ::testing::ValuesIn(heads_cases()),
                         [](const auto& info) { return info.param.base.name; });

TEST_P(TalkingHeadsCase, EqualsTheDefinitionOnEveryTarget) {
  for (bool rows_first : {false, true}) {
    HeadsData want(GetParam(), DType::kFloat32, rows_first);
    want.run_reference();
    const double bound = error_bound(want);
    for (const std::string& target : simd_targets()) {
      SCOPED_TRACE(target);
      SimdGuard guard(target);
      HeadsData got(GetParam(), DType::kFloat32, rows_first);
      got.run();
      expect_close(got, want, bound);
    }
  }
}

// bfloat16 in and out: sums are float32, so that only rounding the results differs from the
// definition on the same inputs.
TEST_P(TalkingHeadsCase, BFloat16KeepsFloat32Sums) {
  HeadsData want(GetParam(), DType::kBFloat16), got(GetParam(), DType::kBFloat16);
  want.run_reference();
  got.run();
  expect_close(got, want, testing_support::sum_tolerance(4, 1.0, testing_support::kBFloat16Eps));
}

TEST_P(TalkingHeadsCase, ThreadsChangeNothing) {
  HeadsData one(GetParam());
  one.run();
  for (int64_t threads : {2, 3}) {
    ThreadGuard guard(threads);
    HeadsData many(GetParam());
    many.run();
    expect_same_bits(many, one);
  }
}

HeadsCase heads_of(const AttentionCase& base, unsigned terms = testing_support::kAll) {
  return {base, base.heads, base.heads, base.heads, base.heads, terms, {}};
}

// Identity projections are no projections, and neither is softmax attention head by head.
TEST(TalkingHeads, IdentityIsPlainAttention) {
  const AttentionCase c{"plain", 2, 4, 4, 70, 130, 32, 32, true};
  AttentionData plain(c);
  softmax_attention_forward_reference(plain.params(), plain.out.mut(), plain.lse.data());
  softmax_attention_backward_reference(plain.params(), plain.gradients());
  for (const unsigned terms : {0u, 3u}) {
    HeadsData x(heads_of(c, terms));
    for (size_t i = 0; i < x.logits.value.size(); i++) {
      x.logits.value[i] = x.weights.value[i] = i % 5 == 0 ? 1.0f : 0.0f;
    }
    x.run();
    const double bound = error_bound(x);
    expect_close("out", x.out, plain.out, bound);
    expect_close("dq", x.dq, plain.dq, bound);
    expect_close("dk", x.dk, plain.dk, bound);
    expect_close("dv", x.dv, plain.dv, bound);
  }
}

// Keys that no head sees hold NaN or Inf, in every tensor that has keys; results must be those of
// zeros there, bit for bit.
TEST(TalkingHeads, WhatNoHeadSeesIsNotRead) {
  for (bool causal : {false, true}) {
    const HeadsCase c =
        heads_of({"poison", 3, 3, 3, 150, 150, 16, 24, causal, MaskForm::kKeyPadding});
    for (const std::string& target : simd_targets()) {
      SimdGuard guard(target);
      HeadsData clean(c), poisoned(c);
      for (int64_t b = 1; b < c.base.batch; b++) {
        for (int64_t s = c.base.keys - b * (c.base.keys / 3); s < c.base.keys; s++) {
          for (int64_t h = 0; h < 3; h++) {
            clean.k.set_row(b, h, s, 0.0);
            clean.v.set_row(b, h, s, 0.0);
            poisoned.k.set_row(b, h, s, s % 2 ? std::nan("") : kInf);
            poisoned.v.set_row(b, h, s, s % 3 ? std::nan("") : -kInf);
          }
          for (int64_t i = 0; i < 9; i++) {
            const int64_t at = (b * c.base.keys + s) * 9 + i;
            clean.m_logits.value[at] = clean.m_weights.value[at] = 0.0f;
            poisoned.m_logits.value[at] = poisoned.m_weights.value[at] =
                s % 2 ? kInf : std::nanf("");
          }
        }
      }
      clean.run();
      poisoned.run();
      expect_same_bits(poisoned, clean);
      EXPECT_FALSE(std::isnan(clean.dv.max_abs())) << target;
    }
  }
}

// The same where a tile's last panel ends anywhere in a vector.
TEST(TalkingHeads, WhatNoHeadSeesIsNotReadAtAnyLength) {
  for (int64_t keys = 1; keys <= 120; keys += 7) {
    for (const int64_t queries : {49, 100}) {
      for (const int64_t bad : {int64_t{0}, keys / 2, keys - 1}) {
        const HeadsCase c =
            heads_of({"poison", 1, 2, 2, queries, keys, 8, 8, true, MaskForm::kKeyPadding});
        HeadsData clean(c), poisoned(c);
        for (HeadsData* x : {&clean, &poisoned}) {
          const float value = x == &clean ? 0.0f : std::nanf("");
          std::fill(x->mask.keep.begin(), x->mask.keep.end(), 1);
          x->mask.keep[bad] = 0;
          for (int64_t h = 0; h < 2; h++) {
            x->k.set_row(0, h, bad, value);
            x->v.set_row(0, h, bad, value);
          }
          std::fill_n(x->m_logits.value.begin() + bad * 4, 4, value);
          std::fill_n(x->m_weights.value.begin() + bad * 4, 4, value);
          x->run();
        }
        SCOPED_TRACE(testing::Message() << queries << " queries, " << keys << " keys, " << bad);
        expect_same_bits(poisoned, clean);
        EXPECT_FALSE(std::isnan(clean.dk.max_abs()));
      }
    }
  }
}

// A key or value that holds NaN spoils the queries that see it and no other.
TEST(TalkingHeads, CausalQueriesDoNotReadTheFuture) {
  const HeadsCase c = heads_of({"future", 1, 2, 2, 140, 140, 16, 16, true}, 3);
  const int64_t bad = 100;
  for (const std::string& target : simd_targets()) {
    SimdGuard guard(target);
    for (bool in_value : {false, true}) {
      HeadsData x(c);
      (in_value ? x.v : x.k).set_row(0, 0, bad, std::nan(""));
      x.run();
      for (int64_t t = 0; t < c.base.queries; t++) {
        EXPECT_EQ(std::isnan(x.out.get(0, 0, t, 0)), t >= bad) << target << " " << t;
        EXPECT_EQ(std::isnan(x.dq.get(0, 0, t, 0)), t >= bad) << target << " " << t;
      }
    }
  }
}

// -inf in one head excludes a key there and nowhere else.
TEST(TalkingHeads, MaskOfOneHeadStaysInIt) {
  HeadsData want(heads_of({"one_head", 1, 2, 2, 9, 70, 8, 8, false, MaskForm::kFloatPerHead}, 3));
  for (int64_t s = 0; s < 70; s++) {
    want.mask.add[s] = s % 2 ? 0.0f : -kInf;
    want.mask.add[70 + s] = 0.0f;
  }
  HeadsData got = want;
  want.run_reference();
  got.run();
  expect_close(got, want, error_bound(want));
  for (int64_t s = 0; s < 70; s += 2) EXPECT_EQ(got.mask.grad[s], 0.0f);
}

TEST(TalkingHeads, QueriesThatSeeNothingAreExactlyZero) {
  for (const std::vector<double>& alpha : {std::vector<double>{}, std::vector<double>{1.5}}) {
    HeadsCase c = heads_of({"empty_rows", 1, 2, 2, 70, 70, 16, 16, false, MaskForm::kBool});
    c.alpha = alpha;
    for (const std::string& target : simd_targets()) {
      SimdGuard guard(target);
      HeadsData x(c);
      for (int64_t t = 3; t < 70; t += 7) {  // the rows that HostMask leaves empty
        for (int64_t h = 0; h < 2; h++) {
          x.q.set_row(0, h, t, std::nan(""));
          x.grad_out.set_row(0, h, t, std::nan(""));
        }
        for (int64_t i = 4 * t; i < 4 * t + 4; i++) {
          x.x_logits.value[i] = x.x_weights.value[i] = std::nanf("");
        }
      }
      x.run();
      EXPECT_FALSE(std::isnan(x.dk.max_abs())) << target;
      EXPECT_FALSE(std::isnan(x.dv.max_abs())) << target;
      for (const float g : x.logits.grad) EXPECT_FALSE(std::isnan(g));
      for (const float g : x.m_weights.grad) EXPECT_FALSE(std::isnan(g));
      for (int64_t t = 3; t < 70; t += 7) {
        for (int64_t d = 0; d < 16; d++) {
          EXPECT_EQ(x.out.get(0, 1, t, d), 0.0);
          EXPECT_EQ(x.dq.get(0, 1, t, d), 0.0);
        }
        for (int64_t i = 4 * t; i < 4 * t + 4; i++) EXPECT_EQ(x.x_logits.grad[i], 0.0f);
      }
    }
  }
}

// Later keys beat the first panel's reference by far more than its headroom.
TEST(TalkingHeads, ReferencesRiseWhenLogitsRunAway) {
  for (const unsigned terms : {0u, 3u, 63u}) {
    const HeadsCase c = heads_of({"runaway", 1, 2, 2, 30, 900, 4, 8}, terms);
    for (const std::string& target : simd_targets()) {
      SimdGuard guard(target);
      HeadsData want(c), got(c);
      for (HeadsData* x : {&want, &got}) {
        x->k.for_each([&](int64_t b, int64_t h, int64_t s, int64_t d) {
          x->k.set(b, h, s, d, x->k.get(b, h, s, d) * (1 + s / 4));
        });
      }
      want.run_reference();
      got.run();
      const double bound = error_bound(want);
      expect_close("out", got.out, want.out, bound);
      expect_close("dv", got.dv, want.dv, bound);
    }
  }
}

TEST(TalkingHeads, SharedMaskOfManyBatchesSumsInOrder) {
  const HeadsCase c =
      heads_of({"shared", 5, 2, 2, 200, 70, 8, 8, false, MaskForm::kFloatPerPair}, 3);
  HeadsData want(c), got(c);
  want.run_reference();
  got.run();
  expect_close(got, want, error_bound(want));
}

TEST(TalkingHeads, GradientsThatAreNotWantedAreNotWritten) {
  const HeadsCase c = heads_of({"few", 1, 2, 2, 9, 9, 8, 8, true});
  HeadsData x(c);
  TalkingHeadsGradients g = x.gradients();
  g.dlogits_proj = g.dweights_proj = g.dx_logits = g.dm_logits = g.dx_weights = g.dm_weights =
      nullptr;
  talking_heads_forward(x.params(), x.out.mut());
  talking_heads_backward(x.params(), g);
  HeadsData all(c);
  all.run();
  EXPECT_TRUE(x.dq.same_bits(all.dq));
  EXPECT_TRUE(x.dk.same_bits(all.dk));
  EXPECT_TRUE(std::isnan(x.logits.grad[0]));
}

}  // namespace
}  // namespace hedgerow::kernels
