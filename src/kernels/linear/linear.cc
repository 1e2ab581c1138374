// The public entry points: float64 takes the reference, everything else the vector code.
#include "hedgerow/kernels/linear.h"

#include "kernels/linear/linear_internal.h"
#include "kernels/linear/linear_reference.h"

namespace hedgerow::kernels {

void hedgehog_features_forward(const FeaturesForward& p) {
  if (p.dtype == DType::kFloat64) return reference::hedgehog_features_forward(p);
  linear::features_forward(p);
}
void hedgehog_features_backward(const FeaturesBackward& p) {
  if (p.dtype == DType::kFloat64) return reference::hedgehog_features_backward(p);
  linear::features_backward(p);
}

void linear_attention_forward(const LinearForward& p) {
  if (p.dtype == DType::kFloat64) return reference::linear_attention_forward(p);
  linear::attention_forward(linear::as_call(p));
}
void linear_attention_backward(const LinearBackward& p) {
  if (p.dtype == DType::kFloat64) return reference::linear_attention_backward(p);
  linear::attention_backward(linear::as_call(p));
}
void linear_attention_step(const LinearStep& p) {
  if (p.dtype == DType::kFloat64) return reference::linear_attention_step(p);
  HedgehogStep step;
  step.dtype = p.dtype;
  step.map = FeatureMap::kRelu;  // not read: the features are given
  step.batch = p.batch;
  step.heads = p.heads;
  step.kv_heads = p.kv_heads;
  step.dim = step.width = p.features;
  step.value_dim = p.value_dim;
  step.q = p.phi_q;
  step.k = p.phi_k;
  step.v = p.v;
  step.s = p.s;
  step.z = p.z;
  step.out = p.out;
  linear::attention_step(step, true);
}

void hedgehog_attention_forward(const HedgehogForward& p) {
  if (p.dtype == DType::kFloat64) return reference::hedgehog_attention_forward(p);
  linear::attention_forward(linear::as_call(p));
}
void hedgehog_attention_backward(const HedgehogBackward& p) {
  if (p.dtype == DType::kFloat64) return reference::hedgehog_attention_backward(p);
  linear::attention_backward(linear::as_call(p));
}
void hedgehog_attention_step(const HedgehogStep& p) {
  if (p.dtype == DType::kFloat64) return reference::hedgehog_attention_step(p);
  linear::attention_step(p, false);
}

}  // namespace hedgerow::kernels
