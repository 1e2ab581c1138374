// What every kernel's parameters are made of. Torch-free; raw pointers, sizes and strides.
//
// Legend (docs/ARCHITECTURE.md): B batch, T queries, S keys, H heads, Hkv key/value heads (Hkv
// divides H; head h reads key/value head h / (H / Hkv)), D query/key width, Dv value width,
// E map width, F feature width. Tensors are [B, H, T, D].
#pragma once

#include <cstdint>

namespace hedgerow::kernels {

enum class DType : uint8_t { kFloat32, kBFloat16, kFloat64 };

inline int64_t element_bytes(DType dtype) {
  return dtype == DType::kFloat64 ? 8 : dtype == DType::kFloat32 ? 4 : 2;
}

// A [B, H, rows, width] tensor that a kernel reads. Strides count elements; the last dimension is
// contiguous (stride 1), the other three are free, so that [B, T, H, D] storage needs no copy.
struct ConstTensor {
  const void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t head_stride = 0;
  int64_t row_stride = 0;
};

// The same, written.
struct MutTensor {
  void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t head_stride = 0;
  int64_t row_stride = 0;
};

template <typename T>
const T* row(const ConstTensor& t, int64_t b, int64_t h, int64_t r) {
  return static_cast<const T*>(t.data) + b * t.batch_stride + h * t.head_stride + r * t.row_stride;
}
template <typename T>
T* row(const MutTensor& t, int64_t b, int64_t h, int64_t r) {
  return static_cast<T*>(t.data) + b * t.batch_stride + h * t.head_stride + r * t.row_stride;
}

// Mask over [B, H, T, S]; a stride of 0 broadcasts. Boolean (one byte, non-zero = keep) or
// floating (added to the scaled scores; -inf excludes, any finite value does not).
enum class MaskKind : uint8_t { kNone, kBool, kFloat32, kFloat64 };
struct Mask {
  MaskKind kind = MaskKind::kNone;
  const void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t head_stride = 0;
  int64_t query_stride = 0;
  int64_t key_stride = 0;
};

// Boolean key mask [B, S], true = keep; data == nullptr keeps every key.
struct KeyMask {
  const uint8_t* data = nullptr;
  int64_t batch_stride = 0;
  int64_t key_stride = 0;
  bool keep(int64_t b, int64_t s) const {
    return data == nullptr || data[b * batch_stride + s * key_stride] != 0;
  }
};

}  // namespace hedgerow::kernels
