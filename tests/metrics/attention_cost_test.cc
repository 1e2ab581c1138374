// The cost model against multiplications counted in the loops of the softmax reference: every
// matrix product of a layer runs through them.
//
// The model leaves out, and so do the counts: the factor `scale` of each pair (the reference
// multiplies by 1.0 too where scores are reconstructed), the factor of dropout of each pair (1.0
// without dropout), the division of each weight by its row's sum. Their numbers are tested by name.
#include "metrics/attention_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "hedgerow/error.h"
#include "kernels/softmax/softmax_reference.h"
#include "testing/attention_data.h"
#include "testing/counted.h"

namespace hedgerow::metrics {
namespace {

using kernels::SoftmaxParams;
using testing_support::Counted;
using testing_support::HostTensor;

int64_t products_made() { return Counted::take().products; }

HostTensor empty(int64_t heads, int64_t rows, int64_t width) {
  return {kernels::DType::kFloat64, 1, heads, rows, width, false};
}
HostTensor random(int64_t heads, int64_t rows, int64_t width, uint64_t seed) {
  HostTensor t = empty(heads, rows, width);
  t.randomise(seed);
  return t;
}

// One head of a tensor of one head serves all.
kernels::ConstTensor for_all_heads(const HostTensor& t, int64_t heads) {
  kernels::ConstTensor view = t.view();
  if (heads == 1) view.head_stride = 0;
  return view;
}

struct Operand {
  const HostTensor& tensor;
  int64_t heads;  // 1: the same for all heads
};

SoftmaxParams params_of(const AttentionSizes& n, Operand q, Operand k) {
  SoftmaxParams p;
  p.dtype = kernels::DType::kFloat64;
  p.batch = 1;
  p.heads = p.kv_heads = n.heads;
  p.queries = q.tensor.rows();
  p.keys = k.tensor.rows();
  p.width = q.tensor.width();
  p.q = for_all_heads(q.tensor, q.heads);
  p.k = for_all_heads(k.tensor, k.heads);
  return p;
}

// a [H or 1,n,w] by b [H or 1,m,w], transposed -> [H,n,m].
HostTensor product(const AttentionSizes& n, Operand a, Operand b) {
  const SoftmaxParams p = params_of(n, a, b);
  HostTensor out = empty(n.heads, p.queries, p.keys);
  out.for_each([&](int64_t, int64_t h, int64_t r, int64_t c) {
    out.set(0, h, r, c, static_cast<double>(kernels::reference_product<Counted>(p, 0, h, r, c)));
  });
  return out;
}

// Counts of one layer, step by step as a scheme makes them.
struct LayerCounts {
  AttentionSizes n;
  AttentionCost cost;

  // Everything from scores on: q [H,T,X], k [H or 1,R,X], v [H,R,Dv]. `so_far` are products that
  // stand for scores, `for_values` those that made v. Returns the attention's output.
  HostTensor attend(const HostTensor& q, Operand k, const HostTensor& v, kernels::Mask mask,
                    int64_t so_far, int64_t for_values, int64_t pairs) {
    SoftmaxParams p = params_of(n, {q, n.heads}, k);
    p.value_width = n.value_dim;
    p.v = v.view();
    p.mask = mask;
    p.scale = 0.5;
    Counted::take();
    for (int64_t h = 0; h < n.heads; h++)
      for (int64_t t = 0; t < p.queries; t++) kernels::reference_row<Counted>(p, 0, h, t);
    cost.scores = so_far + products_made();

    HostTensor out = empty(n.heads, p.queries, n.value_dim), again = out;
    kernels::reference_forward<Counted>(p, out.mut(), nullptr);
    const testing_support::OperationCounts counts = Counted::take();
    EXPECT_EQ(counts.scalings, 2 * pairs) << "scale and dropout, one each for a visible pair";
    EXPECT_EQ(counts.divisions, pairs) << "the normaliser";
    cost.core = so_far + counts.products + for_values;

    kernels::softmax_attention_forward_reference(p, again.mut(), nullptr);
    EXPECT_TRUE(out.same_bits(again)) << "what was counted is the reference";
    return out;
  }

  // With all projections: those counted already and that of the output.
  void project_output(const HostTensor& out, int64_t inputs) {
    product(n, {out, n.heads}, {random(n.heads, n.model_dim, n.value_dim, 9), n.heads});
    cost.layer = cost.core + inputs + products_made();
  }
};

enum class Scheme { kExact, kPartial, kOwnPositions, kLinformer, kSelectedKeys, kWindow };

// The layer of queries' tokens [T,M] and keys' tokens [S,M], all products through the reference.
AttentionCost counted(Scheme scheme, const AttentionSizes& n, int64_t P) {
  const bool reconstructs = scheme == Scheme::kPartial || scheme == Scheme::kOwnPositions;
  const bool few_keys = scheme == Scheme::kPartial || scheme == Scheme::kSelectedKeys;
  const HostTensor x = random(1, n.queries, n.model_dim, 1);
  const HostTensor y = random(1, n.keys, n.model_dim, 2);
  const HostTensor selected = random(1, P, n.model_dim, 3);  // tokens at the positions
  const HostTensor wq = random(n.heads, n.head_dim, n.model_dim, 4);
  const HostTensor wk = random(n.heads, n.head_dim, n.model_dim, 5);
  const HostTensor wv = random(n.heads, n.value_dim, n.model_dim, 6);
  const auto project = [&](const HostTensor& tokens, const HostTensor& weight) {
    return product(n, {tokens, 1}, {weight, n.heads});
  };
  LayerCounts counts{n, {}};
  const int64_t pairs =
      n.heads * n.queries * (scheme == Scheme::kExact || reconstructs ? n.keys : P);
  products_made();
  const HostTensor q = project(x, wq);
  if (scheme == Scheme::kLinformer) {
    const HostTensor keys = product(n, {wk, n.heads}, {y, 1});    // [H,D,S]
    const HostTensor values = product(n, {wv, n.heads}, {y, 1});  // [H,Dv,S]
    const HostTensor e = random(1, P, n.keys, 7);
    const int64_t inputs = products_made();
    const HostTensor few = product(n, {e, 1}, {keys, n.heads});  // [H,P,D]
    const int64_t for_keys = products_made();
    const HostTensor v = product(n, {e, 1}, {values, n.heads});
    const int64_t for_values = products_made();
    counts.project_output(counts.attend(q, {few, n.heads}, v, {}, for_keys, for_values, pairs),
                          inputs);
    return counts.cost;
  }
  const HostTensor k = project(few_keys ? selected : y, wk);
  const HostTensor v = project(scheme == Scheme::kSelectedKeys ? selected : y, wv);
  const int64_t inputs = products_made();
  HostTensor out = empty(0, 0, 0);
  if (reconstructs) {
    HostTensor met = k;  // by a query
    if (scheme == Scheme::kOwnPositions) {
      met = empty(n.heads, P, n.head_dim);
      met.for_each([&](int64_t, int64_t h, int64_t r, int64_t d) {
        met.set(0, h, r, d, k.get(0, h, n.keys - P + r, d));
      });
    }
    const HostTensor c = product(n, {q, n.heads}, {met, n.heads});  // [H,T,P]
    const int64_t so_far = products_made();
    const std::vector<double> mean(n.keys, 0.25);
    const HostTensor r = random(1, n.keys, P, 8);
    out = counts.attend(c, {r, 1}, v, {kernels::MaskKind::kFloat64, mean.data(), 0, 0, 0, 1},
                        so_far, 0, pairs);
  } else if (scheme == Scheme::kWindow) {
    // P keys of each query, slid inwards at the ends
    std::vector<uint8_t> keep(n.queries * n.keys);
    for (int64_t t = 0; t < n.queries; t++) {
      const int64_t first = std::clamp<int64_t>(t - P / 2, 0, n.keys - P);
      for (int64_t s = first; s < first + P; s++) keep[t * n.keys + s] = 1;
    }
    out = counts.attend(q, {k, n.heads}, v,
                        {kernels::MaskKind::kBool, keep.data(), 0, 0, n.keys, 1}, 0, 0, pairs);
  } else {
    out = counts.attend(q, {k, n.heads}, v, {}, 0, 0, pairs);
  }
  counts.project_output(out, inputs);
  return counts.cost;
}

struct SizesCase {
  AttentionSizes sizes;
  int64_t positions;
};
// queries, keys, heads, head_dim, value_dim, model_dim; positions
const SizesCase kCases[] = {{{1, 1, 1, 1, 1, 1}, 1},     {{5, 7, 2, 3, 4, 6}, 1},
                            {{7, 5, 3, 4, 2, 5}, 3},     {{9, 9, 2, 8, 8, 16}, 4},
                            {{16, 16, 4, 8, 8, 32}, 16}, {{3, 33, 1, 5, 9, 4}, 17},
                            {{13, 11, 5, 1, 6, 7}, 11}};

class CountedProducts : public testing::TestWithParam<SizesCase> {
 protected:
  void expect(const AttentionCost& model, Scheme scheme) {
    const AttentionCost found = counted(scheme, GetParam().sizes, GetParam().positions);
    EXPECT_EQ(model.scores, found.scores);
    EXPECT_EQ(model.core, found.core);
    EXPECT_EQ(model.layer, found.layer);
  }
};

TEST_P(CountedProducts, ExactIsWhatTheReferenceMultiplies) {
  expect(exact_cost(GetParam().sizes), Scheme::kExact);
}
TEST_P(CountedProducts, PartialIsWhatTheReferenceMultiplies) {
  expect(partial_cost(GetParam().sizes, GetParam().positions), Scheme::kPartial);
}
TEST_P(CountedProducts, OwnPositionsAreWhatTheReferenceMultiplies) {
  expect(own_positions_cost(GetParam().sizes, GetParam().positions), Scheme::kOwnPositions);
}
TEST_P(CountedProducts, LinformerIsWhatTheReferenceMultiplies) {
  expect(linformer_cost(GetParam().sizes, GetParam().positions), Scheme::kLinformer);
}
TEST_P(CountedProducts, SelectedKeysAreWhatTheReferenceMultiplies) {
  expect(selected_keys_cost(GetParam().sizes, GetParam().positions), Scheme::kSelectedKeys);
}
TEST_P(CountedProducts, WindowsAreWhatTheReferenceMultiplies) {
  expect(window_cost(GetParam().sizes, GetParam().positions), Scheme::kWindow);
}
INSTANTIATE_TEST_SUITE_P(Sizes, CountedProducts, testing::ValuesIn(kCases));

TEST(AttentionCost, BreakEvenSeparatesSavingFromWaste) {
  for (const AttentionSizes n :
       {AttentionSizes{128, 128, 12, 32, 32, 384}, AttentionSizes{512, 512, 12, 64, 64, 768},
        AttentionSizes{2048, 2048, 12, 64, 64, 768}, AttentionSizes{10, 6, 1, 3, 5, 4}}) {
    const double even = break_even_positions(n);
    for (int64_t P = 1; P <= std::min<int64_t>(n.keys, 100); P++) {
      const double p = static_cast<double>(P);
      EXPECT_EQ(partial_cost(n, P).scores < exact_cost(n).scores, p < even) << P;
    }
  }
  EXPECT_NEAR(break_even_positions({128, 128, 12, 32, 32, 384}), 25.6, 1e-12);
  EXPECT_EQ(break_even_positions({}), 0.0);
}

// The table of docs/methods/partial.md.
TEST(AttentionCost, SharesOfTheExactCount) {
  struct Row {
    int64_t n, width, positions;
    AttentionShares want;
  };
  for (const Row& row :
       {Row{128, 32, 16, {0.63, 0.81, 0.79}}, Row{128, 32, 32, {1.25, 1.13, 0.86}},
        Row{512, 64, 16, {0.28, 0.64, 0.73}}, Row{512, 64, 32, {0.56, 0.78, 0.77}},
        Row{2048, 64, 16, {0.26, 0.63, 0.68}}, Row{2048, 64, 32, {0.52, 0.76, 0.76}}}) {
    const AttentionSizes n{row.n, row.n, 12, row.width, row.width, 12 * row.width};
    const AttentionShares got = shares_of(partial_cost(n, row.positions), exact_cost(n));
    EXPECT_NEAR(got.scores, row.want.scores, 0.0051);
    EXPECT_NEAR(got.core, row.want.core, 0.0051);
    EXPECT_NEAR(got.layer, row.want.layer, 0.0051);
  }
}

TEST(AttentionCost, ImpossibleSizesAreRefused) {
  const AttentionSizes n{4, 4, 1, 2, 2, 2};
  for (const auto& cost :
       {partial_cost, own_positions_cost, linformer_cost, selected_keys_cost, window_cost}) {
    EXPECT_THROW(cost(n, 0), Error);
    EXPECT_THROW(cost(n, 5), Error);
    EXPECT_THROW(cost({4, 4, -1, 2, 2, 2}, 1), Error);
  }
  EXPECT_THROW(exact_cost({4, -4, 1, 2, 2, 2}), Error);
}

}  // namespace
}  // namespace hedgerow::metrics
