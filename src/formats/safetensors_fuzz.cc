// Any bytes: a layout whose views lie in the file, or an Error.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "formats/safetensors.h"
#include "hedgerow/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  try {
    const auto layout = hedgerow::formats::parse_safetensors(file, "input");
    for (const auto& [name, tensor] : layout.tensors) {
      const char* end = file.data() + file.size();
      if (tensor.data < file.data() || tensor.num_bytes < 0 || tensor.num_bytes > end - tensor.data)
        std::abort();
    }
  } catch (const hedgerow::Error&) {
  }
  return 0;
}
