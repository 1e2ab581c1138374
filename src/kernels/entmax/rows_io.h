// Rows of tensors as the kernels want them: float32, contiguous, -inf where a mask excludes. Rows
// that lie so are used in place; the others pass through scratch, kBlock rows at a time, so that
// neighbouring rows of a strided dimension share cache lines.
#pragma once

#include <cstdint>
#include <functional>

#include "base/aligned_buffer.h"
#include "hedgerow/kernels/entmax.h"
#include "kernels/entmax/rows_internal.h"

namespace hedgerow::kernels::entmax {

inline constexpr int64_t kBlock = 16;

// Consecutive rows, at most kBlock.
struct Block {
  int64_t first, count;
};

// Floats between rows in scratch: no multiple of 4 KB, whose lines share one cache set.
inline int64_t scratch_stride(int64_t length) { return (length + 15) / 16 * 16 + 16; }

class RowReader {
 public:
  RowReader(const EntmaxRows& rows, const ConstRows& t, const RowMask& mask = {});
  // row[i] = row block.first + i.
  void read(const Block& block, AlignedBuffer<float>& buffer, const float* (&row)[kBlock]) const;

 private:
  void gather(const Block& block, float* buffer) const;

  DType dtype_;
  int64_t length_;
  ConstRows t_;
  RowMask mask_;
  RowOffsets at_, mask_at_;
};

class RowWriter {
 public:
  RowWriter(const EntmaxRows& rows, const MutRows& t);
  // Where the kernel writes the block's rows; nullptr where the tensor has no data.
  void begin(const Block& block, AlignedBuffer<float>& buffer, float* (&row)[kBlock]) const;
  // Brings them to the tensor.
  void end(const Block& block, float* (&row)[kBlock]) const;

 private:
  bool direct() const { return dtype_ == DType::kFloat32 && t_.step == 1; }

  DType dtype_;
  int64_t length_;
  MutRows t_;
  RowOffsets at_;
};

// Calls body(block, scratch of the worker) for all rows, in tasks that depend on shapes only: whole
// blocks where the step between a row's elements is not 1.
void for_blocks(const EntmaxRows& rows, int64_t step,
                const std::function<void(const Block& block, RowScratch& scratch)>& body);

}  // namespace hedgerow::kernels::entmax
