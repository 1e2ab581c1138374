// The methods of partial attention: the family "partial" of `hedgerow bench ops`.
#pragma once

#include <vector>

#include "bench/methods.h"

namespace hedgerow::bench {

// partial_all_keys: ops::partial_attention on keys of all positions; partial_selected:
// ops::partial_attention_selected on keys of the selected positions alone; partial_layer: a layer
// with d_model = H D, four projections without biases and the latter, against the layer of exact
// attention. Positions lie at even distances and are common to all queries and heads, as are the
// reconstruction [S,P] and the mean [S]; both have gradients. Outside the family: partial_by_query,
// with positions [1,T,P], reconstructions [1,T,S,P] and means [1,T,S] of each query.
std::vector<BenchMethod> partial_methods();

}  // namespace hedgerow::bench
