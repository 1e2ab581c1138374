// Loading and storing single elements of the tensors' dtypes, and calling a function template with
// the type that a DType names.
#pragma once

#include <cstdint>

#include "hedgerow/kernels/types.h"
#include "kernels/common/bfloat16.h"

namespace hedgerow::kernels {

struct BFloat16 {
  uint16_t bits;
};

inline double to_double(double x) { return x; }
inline double to_double(float x) { return x; }
inline double to_double(BFloat16 x) { return bfloat16_value(x.bits); }

inline void store(double* p, double x) { *p = x; }
inline void store(float* p, double x) { *p = static_cast<float>(x); }
inline void store(BFloat16* p, double x) { p->bits = bfloat16_bits(static_cast<float>(x)); }

// Type of states and of what is saved for the backward.
template <typename T>
struct StateOf {
  using type = float;
};
template <>
struct StateOf<double> {
  using type = double;
};

// Calls f with a value of the element type that dtype names.
template <typename F>
void with_dtype(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kFloat64:
      return f(double{});
    case DType::kFloat32:
      return f(float{});
    case DType::kBFloat16:
      return f(BFloat16{});
  }
}

}  // namespace hedgerow::kernels
