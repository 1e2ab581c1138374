// Which implementation runs, and the thread pool that kernels use.
#pragma once

#include <c10/util/Exception.h>

#include "hedgerow/ops.h"

namespace hedgerow::ops {

// True when the fused kernel is to run. `fast` says whether it can; under Path::fast_only an input
// that it cannot take is an error which names the reason.
inline bool use_fast(const char* op, bool fast, const char* reason) {
  const Path now = path();
  TORCH_CHECK(now != Path::fast_only || fast, op,
              ": the fused kernel is demanded and does not apply; got ", reason);
  return fast && now != Path::composite_only;
}

}  // namespace hedgerow::ops
