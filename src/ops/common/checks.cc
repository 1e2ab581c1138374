#include "ops/common/checks.h"

#include <cmath>
#include <sstream>

namespace hedgerow::ops {

std::string shape_text(const at::Tensor& t) {
  std::ostringstream out;
  out << t.sym_sizes();
  return out.str();
}

std::string dtype_text(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kBool:
      return "bool";
    case at::kByte:
      return "uint8";
    case at::kChar:
      return "int8";
    case at::kShort:
      return "int16";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    default:
      return c10::toString(dtype);
  }
}

namespace {

// "q, k and v"
std::string list_text(const std::vector<std::string>& parts) {
  std::string out;
  for (size_t i = 0; i < parts.size(); i++)
    out += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return out;
}

bool supported(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble;
}

}  // namespace

void check_inputs(const char* op, const std::vector<Named>& inputs) {
  bool one_dtype = true, one_device = true, known = true;
  for (const Named& t : inputs) {
    HEDGEROW_OP_CHECK(op, t.tensor.defined(), t.name, " must be a tensor; got none");
    known &= supported(t.tensor.scalar_type());
    one_dtype &= t.tensor.scalar_type() == inputs[0].tensor.scalar_type();
    one_device &= t.tensor.device() == inputs[0].tensor.device();
  }
  if (known && one_dtype && one_device) return;
  std::vector<std::string> names, dtypes, devices;
  for (const Named& t : inputs) {
    names.push_back(t.name);
    dtypes.push_back(dtype_text(t.tensor.scalar_type()));
    devices.push_back(t.tensor.device().str());
  }
  HEDGEROW_OP_CHECK(op, known, list_text(names), " must be float32, bfloat16 or float64; got ",
                    list_text(dtypes));
  HEDGEROW_OP_CHECK(op, one_dtype, list_text(names), " must have one dtype; got ",
                    list_text(dtypes));
  HEDGEROW_OP_CHECK(op, one_device, list_text(names), " must be on one device; got ",
                    list_text(devices));
}

void check_rank(const char* op, Named t, int64_t rank, const char* layout) {
  HEDGEROW_OP_CHECK(op, t.tensor.dim() == rank, t.name, " must have ", rank, " dimensions ", layout,
                    "; got shape ", shape_text(t.tensor));
}

void check_same_size(const char* op, Named a, Named b, int64_t dim, const char* what) {
  HEDGEROW_OP_CHECK(op, a.tensor.sym_size(dim) == b.tensor.sym_size(dim), a.name, " and ", b.name,
                    " must have the same ", what, " (dimension ", dim, "); got ", a.name, " shape ",
                    shape_text(a.tensor), " and ", b.name, " shape ", shape_text(b.tensor));
}

void check_shape(const char* op, Named t, c10::SymIntArrayRef sizes, const char* layout) {
  bool same = t.tensor.dim() == static_cast<int64_t>(sizes.size());
  for (size_t i = 0; same && i < sizes.size(); i++) same = t.tensor.sym_size(i) == sizes[i];
  if (same) return;
  std::ostringstream want;
  want << sizes;
  HEDGEROW_OP_CHECK(op, false, t.name, " must have shape ", layout, " = ", want.str(),
                    "; got shape ", shape_text(t.tensor));
}

void check_heads(const char* op, Named q, Named k) {
  const c10::SymInt heads = q.tensor.sym_size(1), kv_heads = k.tensor.sym_size(1);
  const bool divides = kv_heads == 0 ? heads == 0 : heads % kv_heads == 0;
  HEDGEROW_OP_CHECK(op, divides, "the heads of ", q.name, " must be a multiple of the heads of ",
                    k.name, " (dimension 1); got ", q.name, " shape ", shape_text(q.tensor),
                    " and ", k.name, " shape ", shape_text(k.tensor));
}

void check_qk(const char* op, Named q, Named k) {
  check_rank(op, q, 4, "[B, H, T, D]");
  check_rank(op, k, 4, "[B, Hkv, S, D]");
  check_same_size(op, q, k, 0, "batch");
  check_same_size(op, q, k, 3, "width");
  check_heads(op, q, k);
}

void check_keys_and_values(const char* op, Named k, Named v) {
  check_rank(op, v, 4, "[B, Hkv, S, Dv]");
  check_same_size(op, k, v, 0, "batch");
  check_same_size(op, k, v, 2, "number of keys");
}

void check_qkv(const char* op, Named q, Named k, Named v) {
  check_qk(op, q, k);
  check_keys_and_values(op, k, v);
  check_same_size(op, k, v, 1, "number of heads");
}

void check_key_mask(const char* op, const OptTensor& key_mask, const c10::SymInt& batch,
                    const c10::SymInt& keys, const at::Tensor& like) {
  if (!key_mask) return;
  HEDGEROW_OP_CHECK(op, key_mask->scalar_type() == at::kBool,
                    "key_mask must be boolean, true = keep; got ",
                    dtype_text(key_mask->scalar_type()));
  check_shape(op, {"key_mask", *key_mask}, {batch, keys}, "[B, S]");
  HEDGEROW_OP_CHECK(op, key_mask->device() == like.device(),
                    "key_mask must be on the inputs' device ", like.device().str(), "; got ",
                    key_mask->device().str());
}

void check_attn_mask(const char* op, const OptTensor& attn_mask, const c10::SymInt& batch,
                     const c10::SymInt& heads, const c10::SymInt& queries, const c10::SymInt& keys,
                     const at::Tensor& like) {
  if (!attn_mask) return;
  const at::ScalarType dtype = attn_mask->scalar_type();
  HEDGEROW_OP_CHECK(op, dtype == at::kBool || supported(dtype),
                    "attn_mask must be boolean (true = keep), float32, bfloat16 or float64; got ",
                    dtype_text(dtype));
  const c10::SymInt full[4] = {batch, heads, queries, keys};
  const int64_t rank = attn_mask->dim();
  bool fits = rank <= 4;
  for (int64_t i = 0; fits && i < rank; i++) {
    const c10::SymInt size = attn_mask->sym_size(i);
    fits = size == 1 || size == full[4 - rank + i];
  }
  HEDGEROW_OP_CHECK(op, fits, "attn_mask must broadcast to [B, H, T, S] = [", batch, ", ", heads,
                    ", ", queries, ", ", keys, "]; got shape ", shape_text(*attn_mask));
  HEDGEROW_OP_CHECK(op, attn_mask->device() == like.device(),
                    "attn_mask must be on the inputs' device ", like.device().str(), "; got ",
                    attn_mask->device().str());
}

void check_scale(const char* op, std::optional<double> scale) {
  HEDGEROW_OP_CHECK(op, !scale || std::isfinite(*scale), "scale must be finite; got ", *scale);
}

void check_dropout(const char* op, double dropout_p, std::optional<int64_t> dropout_seed) {
  HEDGEROW_OP_CHECK(op, dropout_p >= 0 && dropout_p < 1, "dropout_p must be in [0, 1); got ",
                    dropout_p);
  HEDGEROW_OP_CHECK(op, dropout_p == 0 || dropout_seed.has_value(),
                    "dropout_seed must be given when dropout_p > 0; got dropout_p ", dropout_p,
                    " and no seed");
}

}  // namespace hedgerow::ops
