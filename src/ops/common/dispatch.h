// Calls through torch's dispatcher, and tensors as kernels see them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstring>

#include "hedgerow/kernels/types.h"

namespace hedgerow::ops {

// The typed handle of hedgerow::<name>; keep it in a function-local static.
template <typename Signature>
c10::TypedOperatorHandle<Signature> find_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

inline kernels::DType kernel_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble     ? kernels::DType::kFloat64
         : dtype == at::kBFloat16 ? kernels::DType::kBFloat16
                                  : kernels::DType::kFloat32;
}

// Dtype of accumulation, states and saved normalisers.
inline at::ScalarType accumulate_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// The same values with a contiguous last dimension, as kernels need; no copy where it is so
// already.
inline at::Tensor rows_contiguous(const at::Tensor& t) {
  return t.numel() == 0 || t.size(-1) == 1 || t.stride(-1) == 1 ? t : t.contiguous();
}

// t [B,H,rows,width]; must outlive the result.
inline kernels::ConstTensor const_view(const at::Tensor& t) {
  return {t.const_data_ptr(), t.stride(0), t.stride(1), t.stride(2)};
}
inline kernels::MutTensor mut_view(const at::Tensor& t) {
  return {t.mutable_data_ptr(), t.stride(0), t.stride(1), t.stride(2)};
}

inline const void* const_data(const std::optional<at::Tensor>& t) {
  return t ? t->const_data_ptr() : nullptr;
}

// Boolean [B,S] or none.
inline kernels::KeyMask key_mask_view(const std::optional<at::Tensor>& mask) {
  if (!mask) return {};
  return {static_cast<const uint8_t*>(mask->const_data_ptr()), mask->stride(0), mask->stride(1)};
}

inline std::optional<at::Tensor> contiguous(const std::optional<at::Tensor>& t) {
  if (!t) return std::nullopt;
  return t->contiguous();
}

// None for an undefined tensor.
inline std::optional<at::Tensor> optional(const at::Tensor& t) {
  return t.defined() ? std::optional<at::Tensor>(t) : std::nullopt;
}

// Whether kernels run there; Meta tensors stand for tensors that kernels take.
inline bool on_kernel_device(const at::Tensor& t) {
  return t.device().is_cpu() || t.device().is_meta();
}

// Uninitialised memory for an output that a kernel fills; NaN in builds with HEDGEROW_POISON, so
// that an entry which the kernel forgets shows.
inline at::Tensor fresh(at::IntArrayRef sizes, const at::TensorOptions& options) {
  at::Tensor t = at::empty(sizes, options);
#ifdef HEDGEROW_POISON
  if (t.numel() > 0) std::memset(t.mutable_data_ptr(), 0xff, t.nbytes());
#endif
  return t;
}

}  // namespace hedgerow::ops
