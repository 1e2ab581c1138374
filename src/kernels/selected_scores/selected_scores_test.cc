// Scores of selected keys against their definition, on every target.
#include "hedgerow/kernels/selected_scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "hedgerow/kernels/simd.h"
#include "testing/attention_data.h"
#include "testing/random.h"
#include "testing/simd_guard.h"
#include "testing/tolerance.h"

namespace hedgerow::kernels {
namespace {

using testing_support::HostTensor;
using testing_support::SimdGuard;
using testing_support::ThreadGuard;

struct SelectedCase {
  const char* name;
  int64_t batch, heads, kv_heads, queries, keys, width, selected;
  bool by_head = false;
};

const std::vector<SelectedCase> kCases = {
    {"one", 1, 1, 1, 1, 1, 1, 1},
    {"minilm", 2, 12, 12, 128, 128, 32, 16},
    {"by_head", 2, 4, 4, 30, 40, 16, 5, true},
    {"grouped", 2, 6, 2, 33, 20, 64, 7},
    {"grouped_by_head", 1, 6, 2, 150, 20, 64, 9, true},
    {"widths", 1, 2, 2, 9, 300, 37, 6},
    {"more_than_keys", 1, 2, 1, 5, 3, 8, 10},
    {"long", 1, 2, 2, 1000, 1000, 64, 3},
    {"no_batch", 0, 2, 2, 5, 5, 8, 2},
    {"no_heads", 2, 0, 0, 5, 5, 8, 2},
    {"no_queries", 2, 2, 2, 0, 5, 8, 2},
    {"no_keys", 2, 2, 2, 5, 0, 8, 0},
    {"no_width", 2, 2, 2, 5, 5, 0, 2},
    {"no_positions", 2, 2, 2, 5, 5, 8, 0},
};

// Inputs, and results that hold NaN until they are written.
template <typename Score>
struct Data {
  SelectedCase c;
  DType dtype;
  HostTensor q, k, dq, dk;
  std::vector<int64_t> positions;
  std::vector<Score> scores, grad;

  Data(const SelectedCase& of, DType type, bool rows_first = false)
      : c(of),
        dtype(type),
        q(type, c.batch, c.heads, c.queries, c.width, rows_first),
        k(type, c.batch, c.kv_heads, c.keys, c.width, rows_first),
        dq(q),
        dk(k),
        positions((c.by_head ? c.heads : 1) * c.queries * c.selected),
        scores(c.batch * c.heads * c.queries * c.selected, std::numeric_limits<Score>::quiet_NaN()),
        grad(scores.size()) {
    q.randomise(1);
    k.randomise(2);
    for (size_t i = 0; i < positions.size(); i++)
      positions[i] = static_cast<int64_t>(testing_support::uniform(3, i) * c.keys);
    for (size_t i = 0; i < grad.size(); i++)
      grad[i] = static_cast<Score>(testing_support::normal(4, i));
  }
  SelectedScoresParams params() const {
    return {dtype,   c.batch,    c.heads,  c.kv_heads, c.queries,        c.keys,
            c.width, c.selected, q.view(), k.view(),   positions.data(), c.by_head};
  }
  void run() {
    selected_scores_forward(params(), scores.data());
    selected_scores_backward(params(), grad.data(), dq.mut(), dk.mut());
  }
  void run_reference() {
    selected_scores_forward_reference(params(), scores.data());
    selected_scores_backward_reference(params(), grad.data(), dq.mut(), dk.mut());
  }
};

class Selected : public ::testing::TestWithParam<SelectedCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, Selected, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

void expect_close(const Data<float>& got, const Data<float>& want) {
  const SelectedCase& c = got.c;
  const double bound = testing_support::sum_tolerance(c.width, std::sqrt(1.0 * c.width) + 1);
  for (size_t i = 0; i < want.scores.size(); i++)
    ASSERT_NEAR(got.scores[i], want.scores[i], bound * 4) << i;
  const double rounding = got.dtype == DType::kBFloat16 ? 2 * testing_support::kBFloat16Eps : 0.0;
  const int64_t terms = c.selected * (1 + c.queries * c.heads);
  const double share = rounding + testing_support::sum_tolerance(terms, 1.0);
  EXPECT_LE(got.dq.max_difference(want.dq), share * std::max(1.0, want.dq.max_abs()));
  EXPECT_LE(got.dk.max_difference(want.dk), share * std::max(1.0, want.dk.max_abs()));
}

TEST_P(Selected, EqualsTheDefinitionOnEveryTarget) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const bool rows_first : {false, true}) {
      Data<float> want(GetParam(), dtype, rows_first);
      want.run_reference();
      for (const std::string& target : simd_targets()) {
        SCOPED_TRACE(target);
        const SimdGuard guard(target);
        Data<float> got(GetParam(), dtype, rows_first);
        got.run();
        expect_close(got, want);
      }
    }
  }
}

TEST_P(Selected, ThreadsChangeNothing) {
  Data<float> one(GetParam(), DType::kFloat32), four(GetParam(), DType::kFloat32);
  {
    const ThreadGuard guard(1);
    one.run();
  }
  {
    const ThreadGuard guard(4);
    four.run();
  }
  EXPECT_EQ(one.scores, four.scores);
  EXPECT_TRUE(one.dq.same_bits(four.dq));
  EXPECT_TRUE(one.dk.same_bits(four.dk));
}

// <grad, scores(q + e x)> and <grad, scores(k + e y)> are linear in e.
TEST(SelectedScores, GradientsAreThoseOfTheScores) {
  using D = Data<double>;
  const SelectedCase c{"", 2, 6, 2, 7, 9, 5, 4, true};
  D x(c, DType::kFloat64);
  x.run();
  const auto loss = [](D& d) {
    d.run();
    double sum = 0;
    for (size_t i = 0; i < d.scores.size(); i++) sum += d.grad[i] * d.scores[i];
    return sum;
  };
  const double before = loss(x);
  for (const bool of_q : {true, false}) {
    D moved(c, DType::kFloat64);
    HostTensor& input = of_q ? moved.q : moved.k;
    const HostTensor& gradient = of_q ? x.dq : x.dk;
    double want = 0;
    int64_t i = 0;
    input.for_each([&](int64_t b, int64_t h, int64_t r, int64_t d) {
      const double step = testing_support::normal(5, i++);
      want += step * gradient.get(b, h, r, d);
      input.set(b, h, r, d, input.get(b, h, r, d) + step);
    });
    EXPECT_NEAR(loss(moved) - before, want, 1e-11 * std::max(1.0, std::fabs(want)));
  }
}

// A key that nobody selects is not read into a result.
TEST(SelectedScores, OtherKeysDoNotMatter) {
  const SelectedCase c{"", 1, 2, 2, 6, 8, 16, 3};
  Data<float> x(c, DType::kFloat32);
  for (int64_t& s : x.positions) s = s == 5 ? 4 : s;
  x.k.set_row(0, 1, 5, std::numeric_limits<double>::quiet_NaN());
  x.run();
  for (const float score : x.scores) ASSERT_TRUE(std::isfinite(score));
  EXPECT_TRUE(std::isfinite(x.dq.max_abs()));
  for (int64_t d = 0; d < c.width; d++) EXPECT_EQ(x.dk.get(0, 1, 5, d), 0.0);
}

}  // namespace
}  // namespace hedgerow::kernels
