// hedgerow analyze --what spectra.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"

namespace hedgerow::cli {

struct SpectraOptions {
  std::string model, against, data, out;  // against, out: may be empty
  int64_t column = 0;
  int64_t length = 128;       // n
  int64_t num_windows = 256;  // at most
  std::vector<int64_t> positions = {8, 16, 24, 32, 48};
  int64_t matrix_rank = 0;  // 0: no whole matrices
  bool by_query = false, resume = false, force = false;
};

int run_spectra(const CommonOptions& common, const SpectraOptions& options);

}  // namespace hedgerow::cli
