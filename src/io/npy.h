// NumPy's .npy files (format 1.0), for programs that read the embeddings.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "base/atomic_file.h"

namespace hedgerow::io {

// Writes a float32 or float64 tensor of any rank, row-major, to a file that is open.
void write_npy(AtomicFile& file, const at::Tensor& tensor);

}  // namespace hedgerow::io
