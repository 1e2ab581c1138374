#include "io/npy.h"

#include <ATen/ATen.h>

#include "hedgerow/error.h"

namespace hedgerow::io {

void write_npy(AtomicFile& file, const at::Tensor& tensor) {
  const at::Tensor t = tensor.detach().to(at::kCPU).contiguous();
  const bool wide = t.scalar_type() == at::kDouble;
  HEDGEROW_CHECK(wide || t.scalar_type() == at::kFloat,
                 "npy: the dtype must be float32 or float64; got ", c10::toString(t.scalar_type()));
  std::string shape;
  for (const int64_t size : t.sizes()) shape += concat(size, ",");
  std::string header = concat("{'descr': '", wide ? "<f8" : "<f4",
                              "', 'fortran_order': False, 'shape': (", shape, "), }");
  // Magic, version, length and header together fill a multiple of 64 bytes; the header ends a line.
  constexpr size_t kFixedBytes = 10;
  header.append(63 - (kFixedBytes + header.size()) % 64, ' ').push_back('\n');
  const char start[kFixedBytes + 1] = "\x93NUMPY\x01\x00";
  std::string head(start, 8);
  head.push_back(static_cast<char>(header.size() & 0xff));
  head.push_back(static_cast<char>(header.size() >> 8));
  file.write(head + header);
  file.write(t.const_data_ptr(), static_cast<int64_t>(t.nbytes()));
}

}  // namespace hedgerow::io
