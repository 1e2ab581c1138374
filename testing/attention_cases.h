// Cases of attention shared by correctness tests, gradient tests and benchmarks. Torch-free.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace hedgerow::testing_support {

enum class MaskForm {
  kNone,
  kKeyPadding,    // boolean [B,1,1,S]: the last keys of some batches are padding
  kBool,          // boolean [B,H,T,S], random, with rows that keep nothing
  kFloat,         // floating [B,H,T,S], random values and -inf, with rows of -inf
  kFloatPerPair,  // floating [1,1,T,S]
  kFloatPerHead,  // floating [1,H,1,S]
  kLowest,        // floating [B,1,1,S] of 0 and finfo.min; the last batch is finfo.min throughout
};

struct AttentionCase {
  std::string name;
  int64_t batch, heads, kv_heads, queries, keys, width, value_width;
  bool is_causal = false;
  MaskForm mask = MaskForm::kNone;
  double dropout_p = 0.0;
  double query_scale = 1.0;  // queries are N(0, query_scale^2)
};

inline std::ostream& operator<<(std::ostream& out, const AttentionCase& c) { return out << c.name; }

// Odd lengths, T != S both ways, GQA, D != Dv, every mask form, dropout, empty sizes.
inline std::vector<AttentionCase> attention_cases() {
  using M = MaskForm;
  return {
      {"one", 1, 1, 1, 1, 1, 1, 1},
      {"tile", 1, 2, 2, 64, 64, 64, 64},
      {"two_tiles", 2, 2, 2, 128, 128, 32, 32},
      {"odd_63", 1, 3, 3, 63, 63, 64, 64},
      {"odd_65", 1, 2, 2, 65, 65, 64, 80},
      {"odd_1000", 1, 1, 1, 1000, 1000, 64, 64},
      {"widths_5_17", 2, 2, 2, 37, 70, 5, 17},
      {"widths_96_128", 1, 2, 2, 70, 200, 96, 128},
      {"widths_33_1", 1, 1, 1, 9, 300, 33, 1},
      {"one_query", 2, 4, 4, 1, 513, 64, 64},
      {"one_key", 2, 2, 2, 77, 1, 16, 16},
      {"gqa", 2, 6, 2, 70, 90, 32, 48},
      {"mqa_causal", 1, 4, 1, 130, 130, 64, 64, true},
      {"causal_1", 1, 1, 1, 1, 1, 8, 8, true},
      {"causal_63", 1, 2, 2, 63, 63, 64, 64, true},
      {"causal_65", 1, 2, 2, 65, 65, 64, 64, true},
      {"causal_320", 1, 2, 2, 320, 320, 64, 64, true},
      {"causal_1000", 1, 1, 1, 1000, 1000, 64, 64, true},
      {"causal_fewer_queries", 1, 2, 2, 70, 200, 64, 64, true},
      {"causal_more_queries", 1, 2, 2, 200, 70, 64, 64, true},
      {"padding", 3, 2, 2, 65, 65, 64, 64, false, M::kKeyPadding},
      {"padding_causal", 3, 2, 2, 130, 130, 64, 64, true, M::kKeyPadding},
      {"bool", 2, 2, 2, 65, 130, 32, 32, false, M::kBool},
      {"bool_causal_gqa", 2, 4, 2, 100, 130, 32, 32, true, M::kBool},
      {"float", 2, 2, 2, 65, 130, 32, 32, false, M::kFloat},
      {"float_causal", 1, 2, 2, 130, 130, 32, 32, true, M::kFloat},
      {"float_per_pair", 2, 4, 2, 65, 130, 32, 32, false, M::kFloatPerPair},
      {"float_per_head", 2, 4, 2, 65, 130, 32, 32, false, M::kFloatPerHead},
      {"lowest", 2, 2, 2, 70, 100, 32, 32, false, M::kLowest},
      {"dropout", 1, 2, 2, 130, 130, 64, 64, false, M::kNone, 0.25},
      {"dropout_causal_bool", 2, 2, 1, 65, 65, 32, 32, true, M::kBool, 0.5},
      {"sharp", 1, 2, 2, 130, 400, 64, 64, false, M::kNone, 0.0, 30.0},
      {"no_batch", 0, 2, 2, 5, 5, 8, 8},
      {"no_queries", 2, 2, 2, 0, 5, 8, 8},
      {"no_keys", 2, 2, 2, 5, 0, 8, 8},
      {"no_width", 2, 2, 2, 5, 5, 0, 8},
      {"no_value_width", 2, 2, 2, 5, 5, 8, 0},
  };
}

}  // namespace hedgerow::testing_support
