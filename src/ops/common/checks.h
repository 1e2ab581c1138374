// Checks that several operators share. Each throws c10::Error with "op: rule; got values"; sizes
// may be symbolic, so that Meta kernels check the same things.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// HEDGEROW_OP_CHECK(op, condition, rule and values...)
#define HEDGEROW_OP_CHECK(op, condition, ...) TORCH_CHECK(condition, op, ": ", __VA_ARGS__)

namespace hedgerow::ops {

using OptTensor = std::optional<at::Tensor>;

// A tensor argument and the name it has in the schema.
struct Named {
  const char* name;
  const at::Tensor& tensor;
};

// "[2, 3, 4]", also of symbolic sizes.
std::string shape_text(const at::Tensor& t);
// "float32", "bfloat16", "bool", ...
std::string dtype_text(at::ScalarType dtype);

// The tensors have one dtype out of float32, bfloat16 and float64, and one device.
void check_inputs(const char* op, const std::vector<Named>& inputs);

// The tensor has `rank` dimensions, described by `layout` ("[B, H, T, D]").
void check_rank(const char* op, Named t, int64_t rank, const char* layout);

// Both tensors have the same size on `dim`; `what` says what that size is.
void check_same_size(const char* op, Named a, Named b, int64_t dim, const char* what);

// Exactly these sizes; `layout` says what they are.
void check_shape(const char* op, Named t, c10::SymIntArrayRef sizes, const char* layout);

// q [B,H,T,D], k [B,Hkv,S,D]: ranks, one B and D, Hkv divides H.
void check_qk(const char* op, Named q, Named k);
// k [B,..,S,D], v [B,..,S,Dv]: the rank of v, one B and S.
void check_keys_and_values(const char* op, Named k, Named v);
// Both, and k and v have one number of heads.
void check_qkv(const char* op, Named q, Named k, Named v);

// H of `q` is a multiple of Hkv of `k` (dimension 1).
void check_heads(const char* op, Named q, Named k);

// Boolean [B,S].
void check_key_mask(const char* op, const OptTensor& key_mask, const c10::SymInt& batch,
                    const c10::SymInt& keys, const at::Tensor& like);

// Boolean or floating, broadcastable to [B,H,T,S].
void check_attn_mask(const char* op, const OptTensor& attn_mask, const c10::SymInt& batch,
                     const c10::SymInt& heads, const c10::SymInt& queries, const c10::SymInt& keys,
                     const at::Tensor& like);

void check_scale(const char* op, std::optional<double> scale);
void check_dropout(const char* op, double dropout_p, std::optional<int64_t> dropout_seed);

}  // namespace hedgerow::ops
