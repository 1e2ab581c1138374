// The public entry points: which implementation runs.
#include "hedgerow/kernels/linear.h"

#include "kernels/linear/linear_internal.h"
#include "kernels/linear/linear_reference.h"

namespace hedgerow::kernels {

void hedgehog_features_forward(const FeaturesForward& p) { reference::hedgehog_features_forward(p); }
void hedgehog_features_backward(const FeaturesBackward& p) {
  reference::hedgehog_features_backward(p);
}
void linear_attention_forward(const LinearForward& p) {
  if (p.dtype == DType::kFloat64) return reference::linear_attention_forward(p);
  linear::attention_forward(linear::as_call(p));
}
void linear_attention_backward(const LinearBackward& p) {
  if (p.dtype == DType::kFloat64) return reference::linear_attention_backward(p);
  linear::attention_backward(linear::as_call(p));
}
void linear_attention_step(const LinearStep& p) { reference::linear_attention_step(p); }
void hedgehog_attention_forward(const HedgehogForward& p) {
  if (p.dtype == DType::kFloat64) return reference::hedgehog_attention_forward(p);
  linear::attention_forward(linear::as_call(p));
}
void hedgehog_attention_backward(const HedgehogBackward& p) {
  if (p.dtype == DType::kFloat64) return reference::hedgehog_attention_backward(p);
  linear::attention_backward(linear::as_call(p));
}
void hedgehog_attention_step(const HedgehogStep& p) { reference::hedgehog_attention_step(p); }

}  // namespace hedgerow::kernels
