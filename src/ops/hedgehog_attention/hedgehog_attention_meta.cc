#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/common/dispatch.h"
#include "ops/hedgehog_attention/hedgehog_attention.h"
#include "ops/hedgehog_features/hedgehog_features.h"

namespace hedgerow::ops {
namespace {

HedgehogForwardResult forward_meta(const HedgehogInputs& in, bool want_state) {
  const at::TensorOptions options = in.v.options();
  const at::TensorOptions accumulate = options.dtype(accumulate_dtype(in.v.scalar_type()));
  const auto B = in.q.sym_size(0), H = in.q.sym_size(1), T = in.q.sym_size(2),
             Hkv = in.v.sym_size(1), Dv = in.v.sym_size(3),
             F = feature_width(feature_map(in), in.wk.sym_size(2));
  const auto state = [&](at::SymIntArrayRef sizes) {
    return want_state ? at::empty_symint(sizes, accumulate) : at::empty({0}, accumulate);
  };
  return {at::empty_symint({B, H, T, Dv}, options),
          at::empty_symint({B, H, T}, accumulate),
          at::empty_symint({B, H, T}, accumulate),
          state({B, Hkv, F, Dv}),
          state({B, Hkv, F}),
          state({B, Hkv, F})};
}

at::Tensor hedgehog_attention_meta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const at::Tensor& wq, const at::Tensor& wk, const OptTensor& bq,
                                   const OptTensor& bk, std::string_view variant,
                                   const OptTensor& key_mask, bool is_causal) {
  const HedgehogInputs in{q,        k,         v,  wq, wk, bq, bk, std::string(variant),
                          key_mask, is_causal, {}, {}, {}};
  check_hedgehog_attention("hedgehog_attention", in);
  return std::get<0>(forward_meta(in, false));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> hedgehog_attention_state_meta(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& wq,
    const at::Tensor& wk, const OptTensor& bq, const OptTensor& bk, std::string_view variant,
    const OptTensor& key_mask, const OptTensor& s, const OptTensor& z, const OptTensor& m) {
  const HedgehogInputs in{q, k, v, wq, wk, bq, bk, std::string(variant), key_mask, true, s, z, m};
  check_hedgehog_state("hedgehog_attention_state", in);
  const auto r = forward_meta(in, true);
  return {std::get<0>(r), std::get<3>(r), std::get<4>(r), std::get<5>(r)};
}

at::Tensor hedgehog_step_meta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& wq, const at::Tensor& wk, const OptTensor& bq,
                              const OptTensor& bk, std::string_view variant, at::Tensor& s,
                              at::Tensor& z, at::Tensor& m) {
  const HedgehogInputs in{q, k, v, wq, wk, bq, bk, std::string(variant), {}, true, s, z, m};
  check_hedgehog_step("hedgehog_step_", in);
  return std::get<0>(forward_meta(in, false));
}

HedgehogForwardResult hedgehog_attention_forward_meta(const at::Tensor& q, const at::Tensor& k,
                                                      const at::Tensor& v, const at::Tensor& wq,
                                                      const at::Tensor& wk, const OptTensor& bq,
                                                      const OptTensor& bk, std::string_view variant,
                                                      const OptTensor& key_mask, bool is_causal,
                                                      const OptTensor& s, const OptTensor& z,
                                                      const OptTensor& m, bool want_state) {
  const HedgehogInputs in{q,        k,         v, wq, wk, bq, bk, std::string(variant),
                          key_mask, is_causal, s, z,  m};
  check_hedgehog_attention("hedgehog_attention_forward", in);
  return forward_meta(in, want_state);
}

HedgehogGrads hedgehog_attention_backward_meta(
    const at::Tensor& grad, const OptTensor& grad_s, const OptTensor& grad_z, const at::Tensor& q,
    const at::Tensor& k, const at::Tensor& v, const at::Tensor& wq, const at::Tensor& wk,
    const OptTensor& bq, const OptTensor& bk, std::string_view variant, const at::Tensor& out,
    const at::Tensor& inv_den, const at::Tensor& row_exponent, const OptTensor& s_out,
    const OptTensor& z_out, const OptTensor& m_out, const OptTensor& key_mask, bool is_causal,
    const OptTensor& s, const OptTensor& z, const OptTensor& m) {
  const HedgehogInputs in{q,        k,         v, wq, wk, bq, bk, std::string(variant),
                          key_mask, is_causal, s, z,  m};
  check_hedgehog_attention("hedgehog_attention_backward", in);
  const auto like = [&](const OptTensor& t) {
    return t ? at::empty_symint(t->sym_sizes(), t->options()) : at::empty({0}, q.options());
  };
  return {like(q), like(k), like(v), like(wq), like(wk), like(bq), like(bk), like(s), like(z)};
}

}  // namespace
}  // namespace hedgerow::ops

TORCH_LIBRARY_IMPL(hedgerow, Meta, m) {
  m.impl("hedgehog_attention", hedgerow::ops::hedgehog_attention_meta);
  m.impl("hedgehog_attention_state", hedgerow::ops::hedgehog_attention_state_meta);
  m.impl("hedgehog_step_", hedgerow::ops::hedgehog_step_meta);
  m.impl("hedgehog_attention_forward", hedgerow::ops::hedgehog_attention_forward_meta);
  m.impl("hedgehog_attention_backward", hedgerow::ops::hedgehog_attention_backward_meta);
}
