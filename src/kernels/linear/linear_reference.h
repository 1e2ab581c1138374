// The definition of every function of hedgerow/kernels/linear.h: plain loops over double, every
// dtype. The backwards recompute what they need and read none of the saved tensors but m_out.
#pragma once

#include "hedgerow/kernels/linear.h"

namespace hedgerow::kernels::reference {

void hedgehog_features_forward(const FeaturesForward& p);
void hedgehog_features_backward(const FeaturesBackward& p);
void linear_attention_forward(const LinearForward& p);
void linear_attention_backward(const LinearBackward& p);
void linear_attention_step(const LinearStep& p);
void hedgehog_attention_forward(const HedgehogForward& p);
void hedgehog_attention_backward(const HedgehogBackward& p);
void hedgehog_attention_step(const HedgehogStep& p);

// One row of a feature map: phi [F] of y [E]; square_norm is |x|^2, which only kPerformer reads.
void map_row(FeatureMap map, int64_t width, const double* y, double square_norm, double* phi);

// Gradient of y [E] for grad_phi [F]; the return value is the factor a of the further term a x in
// the gradient of x (kPerformer, else 0).
double map_row_backward(FeatureMap map, int64_t width, const double* y, const double* phi,
                        const double* grad_phi, double* grad_y);

}  // namespace hedgerow::kernels::reference
