// The definition of entmax attention: against its own differences, and against values by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "hedgerow/kernels/entmax_attention.h"
#include "kernels/entmax/attention_case.h"

namespace hedgerow::kernels {
namespace {

using testing_support::AttentionCase;
using testing_support::EntmaxData;
using testing_support::HostTensor;
using testing_support::MaskForm;

constexpr float kInf = std::numeric_limits<float>::infinity();

double loss(EntmaxData& x) {
  entmax_attention_forward_reference(x.params(), x.out.mut(), nullptr);
  double sum = 0;
  x.out.for_each([&](int64_t b, int64_t h, int64_t r, int64_t d) {
    sum += x.out.get(b, h, r, d) * x.grad_out.get(b, h, r, d);
  });
  return sum;
}

class EntmaxDifferences : public ::testing::TestWithParam<AttentionCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, EntmaxDifferences,
    ::testing::Values(AttentionCase{"dense", 1, 2, 1, 3, 4, 3, 2},
                      AttentionCase{"causal", 1, 1, 1, 4, 3, 2, 2, true},
                      AttentionCase{"mask_bool", 1, 2, 2, 8, 5, 2, 3, false, MaskForm::kBool},
                      AttentionCase{"mask_pair", 2, 2, 1, 3, 4, 2, 2, true,
                                    MaskForm::kFloatPerPair},
                      AttentionCase{"mask_full", 1, 2, 1, 4, 4, 2, 2, false, MaskForm::kFloat},
                      AttentionCase{"dropped", 1, 2, 1, 3, 5, 2, 2, false, MaskForm::kNone, 0.4}),
    [](const auto& info) { return info.param.name; });

TEST_P(EntmaxDifferences, MatchTheReferenceBackward) {
  for (const double alpha : {1.0, 1.3, 1.5, 2.0, 2.6, 4.0}) {
    EntmaxData x(GetParam(), 0, DType::kFloat64);
    x.alpha.assign(x.c.heads, alpha);
    x.silence_rows_on_the_edge(1e-3);  // a difference must not cross the threshold
    x.run_reference();
    const double step = 1e-5;  // error step^2 + 1e-16 / step, and weights have steep ends
    const double bound = alpha > 2 ? 1e-6 : 1e-7;
    const auto differentiate = [&](HostTensor& input, const HostTensor& grad) {
      input.for_each([&](int64_t b, int64_t h, int64_t r, int64_t d) {
        const double at = input.get(b, h, r, d);
        input.set(b, h, r, d, at + step);
        const double up = loss(x);
        input.set(b, h, r, d, at - step);
        const double down = loss(x);
        input.set(b, h, r, d, at);
        EXPECT_NEAR(grad.get(b, h, r, d), (up - down) / (2 * step),
                    bound * std::max(1.0, grad.max_abs()))
            << alpha;
      });
    };
    differentiate(x.q, x.dq);
    differentiate(x.k, x.dk);
    differentiate(x.v, x.dv);
    for (size_t h = 0; h < x.alpha.size(); h++) {
      x.alpha[h] = alpha + step;
      const double up = loss(x);
      x.alpha[h] = std::max(alpha - step, 1.0);
      const double down = loss(x), width = alpha + step - x.alpha[h];
      x.alpha[h] = alpha;
      // one-sided at alpha = 1: error step
      EXPECT_NEAR(x.dalpha[h], (up - down) / width, alpha == 1.0 ? 1e-4 : 10 * bound) << alpha;
    }
    for (size_t i = 0; i < x.mask.add.size(); i++) {
      if (x.mask.add[i] != -kInf) continue;
      EXPECT_EQ(x.mask.grad[i], 0.0f);
    }
  }
}

// Two keys with scores 0 and x: entmax-1.5 of (x, 0) by hand, sparsemax, and softmax.
TEST(EntmaxReference, TwoKeysByHand) {
  const AttentionCase c{"two", 1, 3, 1, 1, 2, 1, 1};
  EntmaxData x(c, 0, DType::kFloat64);
  x.alpha = {1.0, 1.5, 2.0};
  x.scale = 1.0;
  const double gap = 0.6;
  x.k.set(0, 0, 0, 0, gap);
  x.k.set(0, 0, 1, 0, 0.0);
  x.v.set(0, 0, 0, 0, 1.0);
  x.v.set(0, 0, 1, 0, 0.0);
  for (int64_t h = 0; h < 3; h++) x.q.set(0, h, 0, 0, 1.0);
  x.run_reference();
  EXPECT_NEAR(x.out.get(0, 0, 0, 0), 1 / (1 + std::exp(-gap)), 1e-14);
  // (u + gap/2)^2 + u^2 = 1
  const double u = (-gap / 2 + std::sqrt(2 - gap * gap / 4)) / 2;
  EXPECT_NEAR(x.out.get(0, 1, 0, 0), (u + gap / 2) * (u + gap / 2), 1e-14);
  EXPECT_NEAR(x.out.get(0, 2, 0, 0), (1 + gap) / 2, 1e-14);
  // sparsemax keeps one key from a gap of 1 on
  x.k.set(0, 0, 0, 0, 1.25);
  x.run_reference();
  EXPECT_EQ(x.out.get(0, 2, 0, 0), 1.0);
  EXPECT_EQ(x.dq.get(0, 2, 0, 0), 0.0);
  EXPECT_EQ(x.stats[2 * kEntmaxRowStats + 2], 1.0f);
}

}  // namespace
}  // namespace hedgerow::kernels
