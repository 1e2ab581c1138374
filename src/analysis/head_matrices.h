// How the mixers of a model mix heads (nn::Mixer::head_matrices), layer by layer, and how much
// there is to it.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "models/encoder.h"

namespace hedgerow::analysis {

struct HeadMatrices {
  std::vector<at::Tensor> values;         // [layer]: [in,out] float64; undefined in layers without
  std::vector<double> effective_rank;     // [layer]; NaN in layers without
  std::vector<double> identity_distance;  // [layer]; NaN also where in and out differ
};

// By name ("logits_proj"); empty where no mixer mixes heads.
std::map<std::string, HeadMatrices> head_matrices(models::Encoder& model);

// exp(-sum p log p) of the singular values over their sum, in [1, min(in,out)]; 0 for zeros, NaN
// where an entry is not finite (Roy and Vetterli, "The effective rank", EUSIPCO 2007).
double effective_rank(const at::Tensor& matrix);

// |matrix - I| / |I| in the Frobenius norm; NaN for a matrix that is not square.
double identity_distance(const at::Tensor& matrix);

}  // namespace hedgerow::analysis
