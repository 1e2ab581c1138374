// Fused entmax attention against its definition, on every target.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hedgerow/kernels/entmax_attention.h"
#include "hedgerow/kernels/simd.h"
#include "kernels/entmax/attention_case.h"
#include "testing/simd_guard.h"
#include "testing/tolerance.h"

namespace hedgerow::kernels {
namespace {

using testing_support::attention_cases;
using testing_support::AttentionCase;
using testing_support::entmax_alphas;
using testing_support::EntmaxData;
using testing_support::HostTensor;
using testing_support::MaskForm;
using testing_support::SimdGuard;
using testing_support::ThreadGuard;

constexpr float kInf = std::numeric_limits<float>::infinity();
// Scores this near the threshold may fall on either side of it in float32, and for alpha = 1.9 the
// slope s = u^0.1 of a weight has a relative error of 0.1 eps / u.
constexpr double kEdge = 1e-3;

// A score errs by eps * sqrt(D) * its size and a weight by at most that, since s <= 1 for
// alpha <= 2; sums over keys or queries add eps * sqrt(n).
double error_bound(const EntmaxData& x, double size) {
  const AttentionCase& c = x.c;
  const int64_t n = c.width + c.value_width + c.keys + c.queries * (c.heads / c.kv_heads);
  return testing_support::sum_tolerance(n, 1.0 + size);
}

void expect_close(const char* what, const HostTensor& got, const HostTensor& want, double bound) {
  EXPECT_LE(got.max_difference(want), bound * std::max(1.0, want.max_abs())) << what;
}

// Gradients for alpha are sums over all rows, of terms of about the size of grad_out . v.
void expect_close_alpha(const EntmaxData& got, const EntmaxData& want, double bound) {
  const double size = std::sqrt(static_cast<double>(want.c.batch * want.c.queries *
                                                    std::max<int64_t>(want.c.value_width, 1)));
  for (size_t h = 0; h < want.dalpha.size(); h++) {
    EXPECT_NEAR(got.dalpha[h], want.dalpha[h], bound * std::max(size, std::fabs(want.dalpha[h])))
        << "alpha " << want.alpha[h];
  }
}

void expect_all_close(const EntmaxData& got, const EntmaxData& want, double bound) {
  expect_close("out", got.out, want.out, bound);
  expect_close("dq", got.dq, want.dq, bound);
  expect_close("dk", got.dk, want.dk, bound);
  expect_close("dv", got.dv, want.dv, bound);
  expect_close_alpha(got, want, bound);
  double largest = 1.0;
  for (float g : want.mask.grad) largest = std::max<double>(largest, std::fabs(g));
  for (size_t i = 0; i < want.mask.grad.size(); i++) {
    ASSERT_NEAR(got.mask.grad[i], want.mask.grad[i], bound * largest) << "dmask " << i;
  }
}

void expect_same_bits(const EntmaxData& a, const EntmaxData& b) {
  EXPECT_TRUE(a.out.same_bits(b.out));
  EXPECT_TRUE(a.dq.same_bits(b.dq));
  EXPECT_TRUE(a.dk.same_bits(b.dk));
  EXPECT_TRUE(a.dv.same_bits(b.dv));
  EXPECT_EQ(a.stats, b.stats);
  EXPECT_EQ(a.index, b.index);
  EXPECT_EQ(a.weight, b.weight);
  EXPECT_EQ(a.mask.grad, b.mask.grad);
  EXPECT_EQ(a.dalpha, b.dalpha);
}

class EntmaxCase : public ::testing::TestWithParam<AttentionCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, EntmaxCase, ::testing::ValuesIn(attention_cases()),
                         [](const auto& info) { return info.param.name; });

// Every alpha comes up in every case, some in the largest; alphas above 2 on scores that float32
// holds exactly.
TEST_P(EntmaxCase, EqualsTheDefinitionOnEveryTarget) {
  const bool large = GetParam().queries * GetParam().keys > 200000;
  const int64_t step = large ? 4 : std::max<int64_t>(GetParam().heads, 1);
  for (int64_t first = 0; first < static_cast<int64_t>(entmax_alphas().size()); first += step) {
    const auto make = [&] {
      EntmaxData x(GetParam(), first, DType::kFloat32, first % 2 == 1);
      x.make_scores_exact();
      x.silence_rows_on_the_edge(kEdge);
      return x;
    };
    EntmaxData want = make();
    want.run_reference();
    const double bound = error_bound(want, want.score_size());
    for (const std::string& target : simd_targets()) {
      SCOPED_TRACE(target + ", first alpha " + std::to_string(first));
      SimdGuard guard(target);
      EntmaxData got = make();
      got.run();
      expect_all_close(got, want, bound);
    }
  }
}

// Inputs as they come, for the alphas that float32 scores determine.
TEST_P(EntmaxCase, EqualsTheDefinitionUpToSparsemax) {
  AttentionCase c = GetParam();
  for (int64_t first : {4, 5, 1, 6}) {
    if (c.queries * c.keys > 200000 && first != 4 && first != 5) break;
    EntmaxData want(c, first), got(c, first);
    for (EntmaxData* x : {&want, &got}) {
      for (double& alpha : x->alpha) alpha = std::min(alpha, 2.0);
      x->silence_rows_on_the_edge(kEdge * (1 + 1e-2 * c.query_scale));
    }
    want.run_reference();
    got.run();
    expect_all_close(got, want, error_bound(want, want.score_size()));
  }
}

TEST_P(EntmaxCase, BFloat16KeepsFloat32Sums) {
  EntmaxData want(GetParam(), 5, DType::kBFloat16), got(GetParam(), 5, DType::kBFloat16);
  for (EntmaxData* x : {&want, &got}) {
    for (double& alpha : x->alpha) alpha = std::min(alpha, 2.0);
    x->silence_rows_on_the_edge(kEdge * (1 + 1e-2 * want.c.query_scale));
  }
  want.run_reference();
  got.run();
  const double bound = testing_support::sum_tolerance(4, 1.0, testing_support::kBFloat16Eps);
  expect_close("out", got.out, want.out, bound);
  expect_close("dq", got.dq, want.dq, bound);
  expect_close("dk", got.dk, want.dk, bound);
  expect_close("dv", got.dv, want.dv, bound);
}

TEST_P(EntmaxCase, ThreadsChangeNothing) {
  EntmaxData one(GetParam(), 4);
  {
    ThreadGuard guard(1);
    one.run();
  }
  for (int64_t threads : {2, 3}) {
    ThreadGuard guard(threads);
    EntmaxData many(GetParam(), 4);
    many.run();
    expect_same_bits(many, one);
  }
}

// What is kept says what the definition says.
TEST_P(EntmaxCase, KeepsTheSupport) {
  EntmaxData want(GetParam(), 4), got(GetParam(), 4);
  for (EntmaxData* x : {&want, &got}) x->make_scores_exact();
  want.run_reference();
  got.run();
  const double bound = error_bound(want, want.score_size());
  for (int64_t row = 0; row < want.rows(); row++) {
    const float* a = got.stats.data() + row * kEntmaxRowStats;
    const float* b = want.stats.data() + row * kEntmaxRowStats;
    ASSERT_EQ(a[0], b[0]) << row;
    ASSERT_NEAR(a[1], b[1], bound * std::max(1.0f, std::fabs(b[1]))) << row;
    ASSERT_LE(std::fabs(a[2] - b[2]), 1.0f) << row;  // one may lie on the threshold
    if (a[2] != b[2] || a[2] > want.capacity()) continue;
    for (int64_t i = row * want.capacity(); i < (row + 1) * want.capacity(); i++) {
      ASSERT_NEAR(got.weight[i], want.weight[i], bound) << i;
      for (int64_t byte = 0; byte < 2; byte++) {
        ASSERT_EQ(got.index[2 * i + byte], want.index[2 * i + byte]) << i;
      }
    }
  }
}

// Rows that do not fit get their weights again: in lists, and in dense tiles.
TEST(EntmaxAttention, KeptAndRecomputedRowsAgree) {
  const AttentionCase c{"again", 1, 6, 3, 90, 700, 64, 64, true, MaskForm::kNone, 0.2};
  for (const std::string& target : simd_targets()) {
    SCOPED_TRACE(target);
    SimdGuard guard(target);
    EntmaxData kept(c, 4);  // 1.25, 1.5, 1.9, 2, 3, 10
    kept.make_scores_exact();
    kept.silence_rows_on_the_edge(kEdge);
    kept.run();
    int64_t fitting = 0;
    for (int64_t row = 0; row < kept.rows(); row++) {
      fitting += kept.stats[row * kEntmaxRowStats + 2] <= kept.capacity();
    }
    EXPECT_GT(fitting, kept.rows() / 2);
    for (const float pretended : {kept.capacity() + 1.0f, 700.0f}) {
      EntmaxData again = kept;
      for (int64_t row = 0; row < kept.rows(); row++) {
        again.stats[row * kEntmaxRowStats + 2] = pretended;
      }
      std::fill(again.weight.begin(), again.weight.end(), std::nanf(""));
      entmax_attention_backward(again.params(), again.gradients());
      expect_all_close(again, kept, error_bound(kept, 1.0));
    }
  }
}

TEST(EntmaxAttention, QueryRangesOfTheBackwardAgreeForAnyThreads) {
  for (bool causal : {false, true}) {  // screened on some machines
    const AttentionCase c{"long", 1, 2, 1, 1100, 900, 16, 24, causal};
    EntmaxData want(c, 4), one(c, 4), three(c, 4);  // 1.25, 1.5
    for (EntmaxData* x : {&want, &one, &three}) x->silence_rows_on_the_edge(kEdge);
    want.run_reference();
    one.run();
    {
      ThreadGuard guard(3);
      three.run();
    }
    expect_all_close(one, want, error_bound(want, want.score_size()));
    expect_same_bits(three, one);
  }
}

// Long rows, which machines with bfloat16 products screen: results are those of float32 scores all
// the same, padded keys that hold NaN included. One key far longer than the others makes the
// screen's bound useless for some of the rows.
TEST(EntmaxAttention, ScreenedRowsAreExact) {
  for (const MaskForm form : {MaskForm::kNone, MaskForm::kKeyPadding}) {
    for (const bool long_key : {false, true}) {
      const AttentionCase c{"screened", 2, 6, 3, 700, 800, 64, 48, form == MaskForm::kNone, form};
      EntmaxData want(c), got(c);
      for (EntmaxData* x : {&want, &got}) {
        x->alpha = {1.2, 1.3, 1.5, 1.7, 1.9, 2.0};
        for (int64_t s = c.keys - 100; form == MaskForm::kKeyPadding && s < c.keys; s++) {
          x->k.set_row(1, 0, s, std::nan(""));
        }
        if (long_key) x->k.set_row(0, 1, 5, 40.0);
      }
      entmax_attention_forward_reference(want.params(), want.out.mut(), nullptr);
      entmax_attention_forward(got.params(), got.out.mut(), nullptr);
      expect_close("out", got.out, want.out, error_bound(want, long_key ? 60.0 : 6.0));
    }
  }
}

// Equal scores: every key is supported, whatever alpha; an alpha for all heads.
TEST(EntmaxAttention, EqualScoresShareTheWeight) {
  const AttentionCase c{"equal", 1, 1, 1, 30, 1500, 16, 16};
  for (const double alpha : entmax_alphas()) {
    for (const std::string& target : simd_targets()) {
      SCOPED_TRACE(target + ", alpha " + std::to_string(alpha));
      SimdGuard guard(target);
      EntmaxData want(c), got(c);
      for (EntmaxData* x : {&want, &got}) {
        x->alpha = {alpha};
        for (int64_t t = 0; t < c.queries; t++) x->q.set_row(0, 0, t, 0.0);
      }
      want.run_reference();
      got.run();
      // alpha = 10 multiplies gradients by 1500^8
      const double large = std::max({1.0, want.dq.max_abs(), want.dk.max_abs()});
      EXPECT_EQ(got.stats[2], 1500.0f);
      EXPECT_LE(got.out.max_difference(want.out), 2e-6);
      EXPECT_LE(got.dq.max_difference(want.dq), testing_support::sum_tolerance(1500, large));
      EXPECT_LE(got.dv.max_difference(want.dv), 1e-6);
    }
  }
}

// Scores of thousands: the largest wins, ties share, nothing is NaN.
TEST(EntmaxAttention, HugeScoresAreExact) {
  AttentionCase c{"huge", 1, 10, 5, 40, 300, 8, 16};
  for (const std::string& target : simd_targets()) {
    SCOPED_TRACE(target);
    SimdGuard guard(target);
    EntmaxData want(c), got(c);
    for (EntmaxData* x : {&want, &got}) {
      x->make_scores_exact();
      x->scale = 1024.0;
      for (int64_t g = 0; g < c.kv_heads; g++) {
        for (int64_t d = 0; d < c.width; d++) x->k.set(0, g, 7, d, x->k.get(0, g, 8, d));
      }
    }
    want.run_reference();
    got.run();
    EXPECT_LE(got.out.max_difference(want.out), 1e-6);
    EXPECT_LE(got.dv.max_difference(want.dv), 1e-5);
    EXPECT_FALSE(std::isnan(got.dq.max_abs()));
    EXPECT_FALSE(std::isnan(got.dk.max_abs()));
  }
}

TEST(EntmaxAttention, Float64IsTheReference) {
  const AttentionCase c{"float64", 1, 2, 1, 9, 12, 5, 7, true};
  EntmaxData want(c, 4, DType::kFloat64), got(c, 4, DType::kFloat64);
  want.run_reference();
  got.run();
  expect_same_bits(got, want);
}

TEST(EntmaxAttention, SupportAndAlphaGradientMayBeLeftOut) {
  EntmaxData with(attention_cases()[2], 4), without(attention_cases()[2], 4);
  with.run();
  entmax_attention_forward(without.params(), without.out.mut(), nullptr);
  EXPECT_TRUE(with.out.same_bits(without.out));
  EntmaxGradients g = with.gradients();
  g.dq = without.dq.mut();
  g.dalpha = nullptr;
  entmax_attention_backward(with.params(), g);
  EXPECT_TRUE(with.dq.same_bits(without.dq));
}

TEST(EntmaxAttention, OneAlphaForAllHeads) {
  EntmaxData each(attention_cases()[2]), one(attention_cases()[2]);
  each.alpha.assign(each.c.heads, 1.3);
  each.run();
  EntmaxAttentionParams p = one.params();
  const double alpha = 1.3;
  p.alpha = &alpha;
  p.alpha_stride = 0;
  entmax_attention_forward(p, one.out.mut(), nullptr);
  EXPECT_TRUE(one.out.same_bits(each.out));
}

TEST(EntmaxAttention, KeepsAtMost600BytesARow) {
  for (int64_t keys : {0, 1, 95, 96, 97, 4096, 65536, 65537, 1 << 24}) {
    const int64_t entries =
        entmax_support_capacity(keys) * (entmax_support_index_bytes(keys) + sizeof(float));
    EXPECT_LE(kEntmaxRowStats * static_cast<int64_t>(sizeof(float)) + entries, 600);
    EXPECT_LE(entmax_support_capacity(keys), keys);
  }
}

}  // namespace
}  // namespace hedgerow::kernels
