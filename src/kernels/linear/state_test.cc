// Continuing a state, decoding, threads, and inputs that overflow a plain exp.
#include <gtest/gtest.h>

#include "hedgerow/kernels/simd.h"
#include "kernels/linear/linear_case.h"
#include "testing/simd_guard.h"
#include "testing/tolerance.h"

namespace hedgerow::kernels::linear_test {
namespace {

using testing_support::kFloat32Eps;
using testing_support::SimdGuard;
using testing_support::ThreadGuard;

double largest_y(const Case& c) { return 6 * c.scale * std::sqrt(static_cast<double>(c.D)); }

// Two orders of the same sums, and exponents rounded once more each.
double tolerance(const Case& c, const Inputs& in) {
  return in.v.max_abs() * 8 * kFloat32Eps * (largest_y(c) + std::sqrt(1.0 * c.S + c.F() + c.Dv));
}

Outputs run(const Case& c, Inputs& in) {
  Outputs o;
  forward(c, in, o, false);
  return o;
}

// The part [from, from + n) of every sequence, continuing the state in `in`.
Inputs part_of(const Case& c, const Inputs& in, int64_t from, int64_t n, const Case& part) {
  Inputs out(part);
  auto copy = [&](const Array& a, Array& b, int64_t heads, int64_t width) {
    for (int64_t h = 0; h < heads; h++) {
      for (int64_t i = 0; i < n * width; i++) {
        b.set(h * n * width + i, a.get((h * c.T + from) * width + i));
      }
    }
  };
  copy(in.q, out.q, c.B * c.H, c.D);
  copy(in.k, out.k, c.B * c.Hkv, c.D);
  copy(in.v, out.v, c.B * c.Hkv, c.Dv);
  out.wq = in.wq;
  out.wk = in.wk;
  out.bq = in.bq;
  out.bk = in.bk;
  return out;
}

// One call equals calls over parts that pass the state on.
void check_split(Case c, const std::vector<int64_t>& parts) {
  Inputs in(c);
  const Outputs whole = run(c, in);
  Outputs last;
  int64_t from = 0;
  for (int64_t n : parts) {
    Case part = c;
    part.T = part.S = n;
    part.state = from > 0;
    Inputs some = part_of(c, in, from, n, part);
    if (from > 0) {
      some.s = last.s;
      some.z = last.z;
      some.m = last.m;
    }
    last = run(part, some);
    for (int64_t h = 0; h < c.B * c.H; h++) {
      for (int64_t i = 0; i < n * c.Dv; i++) {
        ASSERT_NEAR(last.out.get(h * n * c.Dv + i), whole.out.get((h * c.T + from) * c.Dv + i),
                    tolerance(c, in))
            << c.name << " from " << from << " at " << i << " " << simd_target();
      }
    }
    from += n;
  }
}

// Token by token in place equals one call.
void check_decode(const Case& c) {
  Inputs in(c);
  const Outputs whole = run(c, in);
  Array s(DType::kFloat32, in.s.size), z(DType::kFloat32, in.z.size), m(DType::kFloat32, in.z.size);
  for (Array* a : {&s, &z, &m}) {
    for (int64_t i = 0; i < a->size; i++) a->set(i, 0);
  }
  Array out(c.dtype, c.B * c.H * c.T * c.Dv);
  for (int64_t t = 0; t < c.T; t++) {
    auto token = [&](ConstTensor x) {
      x.data = static_cast<const char*>(x.data) + t * x.row_stride * element_bytes(c.dtype);
      return x;
    };
    auto fill_step = [&](auto& p) {
      p.dtype = c.dtype;
      p.batch = c.B;
      p.heads = c.H;
      p.kv_heads = c.Hkv;
      p.value_dim = c.Dv;
      p.v = token(tensor(in.v, false, c.Hkv, c.S, c.Dv));
      p.s = s.data();
      p.z = z.data();
      p.out = mut_tensor(out, false, c.H, c.T, c.Dv);
      p.out.data = static_cast<char*>(p.out.data) + t * c.Dv * element_bytes(c.dtype);
    };
    if (c.given) {
      LinearStep p;
      fill_step(p);
      p.features = c.D;
      p.phi_q = token(tensor(in.q, false, c.H, c.T, c.D));
      p.phi_k = token(tensor(in.k, false, c.Hkv, c.S, c.D));
      linear_attention_step(p);
      continue;
    }
    HedgehogStep p;
    fill_step(p);
    p.map = c.map;
    p.dim = c.D;
    p.width = c.E;
    p.q = token(tensor(in.q, false, c.H, c.T, c.D));
    p.k = token(tensor(in.k, false, c.Hkv, c.S, c.D));
    p.wq = in.wq.data();
    p.wk = in.wk.data();
    p.bq = c.bias ? in.bq.data() : nullptr;
    p.bk = c.bias ? in.bk.data() : nullptr;
    p.m = m.data();
    hedgehog_attention_step(p);
  }
  const double rounding =
      c.dtype == DType::kBFloat16 ? 2 * testing_support::kBFloat16Eps * in.v.max_abs() : 0;
  for (int64_t i = 0; i < out.size; i++) {
    ASSERT_NEAR(out.get(i), whole.out.get(i), tolerance(c, in) + rounding)
        << c.name << " " << simd_target() << " at " << i;
  }
}

Case with(std::string name, FeatureMap map, double scale, int64_t width) {
  Case c;
  c.name = std::move(name);
  c.map = map;
  c.scale = scale;
  c.T = c.S = 150;
  c.D = c.E = c.Dv = width;
  return c;
}

class EveryTarget : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryTarget, SplitsOfTheTokensAgree) {
  SimdGuard guard(GetParam());
  for (double scale : {1.0, 30.0, 1000.0}) {
    check_split(with("split", FeatureMap::kExp, scale, 16), {1, 2, 61, 64, 22});
    check_split(with("split", FeatureMap::kExp, scale, 13), {100, 50});
  }
  check_split(with("split softmax", FeatureMap::kSoftmax, 1, 16), {65, 85});
  Case given = with("split given", FeatureMap::kExp, 1, 16);
  given.given = true;
  check_split(given, {3, 147});
}

TEST_P(EveryTarget, DecodingAgreesWithOneCall) {
  SimdGuard guard(GetParam());
  for (double scale : {1.0, 30.0, 1000.0}) {
    for (int64_t width : {16, 13}) {
      Case c = with("decode", FeatureMap::kExp, scale, width);
      c.B = 2;
      c.H = 4;
      c.bias = true;
      check_decode(c);
    }
  }
  for (FeatureMap map : {FeatureMap::kSoftmax, FeatureMap::kElu, FeatureMap::kPerformer}) {
    check_decode(with("decode", map, 1, 16));
  }
  Case given = with("decode given", FeatureMap::kExp, 1, 32);
  given.given = true;
  check_decode(given);
  Case half = with("decode bf16", FeatureMap::kExp, 1, 16);
  half.dtype = DType::kBFloat16;
  check_decode(half);
}

// A key far larger than all others comes late: rows before it must not notice, rows after follow
// it.
TEST_P(EveryTarget, OneHugeLaterKey) {
  SimdGuard guard(GetParam());
  Case c = with("huge key", FeatureMap::kExp, 1, 16);
  for (int64_t at : {3, 66, 149}) {
    Inputs plain(c), huge(c);
    for (int64_t i = 0; i < c.D; i++) huge.k.set(at * c.D + i, 3000 * huge.k.get(at * c.D + i));
    const Outputs before = run(c, plain), after = run(c, huge);
    Outputs want;
    forward(c, huge, want, true);
    for (int64_t i = 0; i < c.T * c.Dv; i++) {
      const double slack = i < at * c.Dv ? 1e-5 : tolerance(c, huge) * 3000;
      ASSERT_NEAR(after.out.get(i), want.out.get(i), slack) << at << " " << i;
      if (i < at * c.Dv) {
        ASSERT_NEAR(after.out.get(i), before.out.get(i), 1e-5);
      }
    }
  }
}

// Queries opposite to the keys: every plain product of features underflows at this size.
TEST_P(EveryTarget, AntiAlignedQueries) {
  SimdGuard guard(GetParam());
  for (bool causal : {true, false}) {
    Case c = with("anti-aligned", FeatureMap::kExp, 100, 16);
    c.causal = causal;
    c.H = c.Hkv = 1;
    Inputs in(c);
    for (int64_t i = 0; i < c.D * c.E; i++) in.wk.set(i, in.wq.get(i));
    for (int64_t i = 0; i < in.q.size; i++) in.k.set(i, -in.q.get(i % c.D));
    for (int64_t i = 0; i < in.q.size; i++) in.q.set(i, in.q.get(i % c.D));
    Outputs got = run(c, in), want;
    forward(c, in, want, true);
    for (int64_t i = 0; i < got.out.size; i++) {
      ASSERT_NEAR(got.out.get(i), want.out.get(i), tolerance(c, in)) << i;
    }
  }
}

std::vector<char> all_bytes(const Case& c, int64_t threads) {
  ThreadGuard guard(threads);
  Inputs in(c);
  Outputs o;
  forward(c, in, o, false);
  backward(c, in, o, false, true);
  std::vector<char> bytes;
  for (Array* a : {&o.out, &o.inv, &o.s, &o.z, &o.m, &o.dq, &o.dk, &o.dv, &o.dwq, &o.dwk}) {
    bytes.insert(bytes.end(), a->bytes.begin(), a->bytes.begin() + a->size * 4);
  }
  return bytes;
}

TEST(Threads, ResultsAreBitwiseEqual) {
  for (double scale : {1.0, 300.0}) {
    for (bool causal : {true, false}) {
      Case c = with("threads", FeatureMap::kExp, scale, 16);
      c.causal = causal;
      c.B = 3;
      c.H = 4;
      c.Hkv = 2;
      const std::vector<char> one = all_bytes(c, 1);
      EXPECT_EQ(one, all_bytes(c, 2));
      EXPECT_EQ(one, all_bytes(c, 3));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Simd, EveryTarget, ::testing::ValuesIn(simd_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hedgerow::kernels::linear_test
