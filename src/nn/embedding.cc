#include "nn/embedding.h"

namespace hedgerow::nn {

Embedding::Embedding(int64_t rows, int64_t width) {
  weight = register_parameter("weight", at::zeros({rows, width}));
}

at::Tensor Embedding::forward(const at::Tensor& ids) { return at::embedding(weight, ids); }

}  // namespace hedgerow::nn
