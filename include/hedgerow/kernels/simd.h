// Which instruction set the kernels use. Chosen at run time: the best that the machine has, or the
// one named by the environment variable HEDGEROW_SIMD (an error if the machine lacks it).
#pragma once

#include <string>
#include <vector>

namespace hedgerow::kernels {

// Names of the compiled targets that this machine can run, best first ("avx3", "avx2", "sse4",
// ...).
std::vector<std::string> simd_targets();

// The target in use.
std::string simd_target();

// Uses the named target from now on; "" returns to the best. Throws hedgerow::Error listing the
// names when the machine or the build lacks it. Not to be called while a kernel runs.
void set_simd_target(const std::string& name);

}  // namespace hedgerow::kernels
