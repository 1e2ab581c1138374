// Element types of stored tensors, by the names that safetensors gives them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hedgerow::formats {

enum class Dtype {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

// "F32", "BF16", "I64", ...
const char* dtype_name(Dtype dtype);

std::optional<Dtype> dtype_from_name(std::string_view name);

// Bits of one element; types narrower than a byte are packed.
int64_t dtype_bits(Dtype dtype);

}  // namespace hedgerow::formats
