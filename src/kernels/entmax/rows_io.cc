#include "kernels/entmax/rows_io.h"

#include <algorithm>
#include <limits>

#include "base/parallel.h"
#include "kernels/common/bfloat16.h"

namespace hedgerow::kernels::entmax {
namespace {

// Elements per task: enough to hide handing it out, few enough to balance.
constexpr int64_t kTaskElements = 1 << 15;

float value(float x) { return x; }
float value(uint16_t x) { return bfloat16_value(x); }
void store(float x, float* to) { *to = x; }
void store(float x, uint16_t* to) { *to = bfloat16_bits(x); }

}  // namespace

void check_alphas(const EntmaxRows& rows) {
  for (int64_t i = 0; i < rows.num_alphas; i++) check_alpha(rows.alpha[i]);
}

void check_targets(const EntmaxRows& rows, const EntmaxLoss& loss) {
  for (int64_t r = 0; r < num_rows(rows); r++) {
    const int64_t y = loss.target[r];
    HEDGEROW_CHECK(y == loss.ignore_index || (y >= 0 && y < rows.length),
                   "entmax_loss: targets must be in [0, ", rows.length, ") or ", loss.ignore_index,
                   "; got ", y, " in row ", r);
  }
}

RowOffsets::RowOffsets(const EntmaxRows& rows, const std::vector<int64_t>& strides,
                       int64_t default_stride) {
  if (strides.empty()) {
    dims_.push_back({num_rows(rows), default_stride});
    return;
  }
  for (size_t i = 0; i < rows.sizes.size(); i++) {
    const Dim next{rows.sizes[i], strides[i]};
    if (next.size == 1) continue;
    if (!dims_.empty() && dims_.back().stride == next.stride * next.size) {
      dims_.back() = {dims_.back().size * next.size, next.stride};
    } else {
      dims_.push_back(next);
    }
  }
  if (dims_.empty()) dims_.push_back({1, 0});
}

RowReader::RowReader(const EntmaxRows& rows, const ConstRows& t, const RowMask& mask)
    : dtype_(rows.dtype),
      length_(rows.length),
      t_(t),
      mask_(mask),
      at_(rows, t.strides, rows.length),
      mask_at_(rows, mask.strides, rows.length) {}

void RowReader::read(const Block& block, AlignedBuffer<float>& buffer,
                     const float* (&row)[kBlock]) const {
  if (dtype_ == DType::kFloat32 && t_.step == 1 && mask_.data == nullptr) {
    for (int64_t j = 0; j < block.count; j++) {
      row[j] = static_cast<const float*>(t_.data) + at_(block.first + j);
    }
    return;
  }
  float* rows = reserve(buffer, kBlock * scratch_stride(length_));
  gather(block, rows);
  for (int64_t j = 0; j < block.count; j++) row[j] = rows + j * scratch_stride(length_);
}

void RowReader::gather(const Block& block, float* buffer) const {
  const int64_t stride = scratch_stride(length_);
  const auto copy = [&]<typename T>(const T* data) {
    const T* from[kBlock];
    for (int64_t j = 0; j < block.count; j++) from[j] = data + at_(block.first + j);
    if (t_.step == 1) {
      for (int64_t j = 0; j < block.count; j++) {
        for (int64_t i = 0; i < length_; i++) buffer[j * stride + i] = value(from[j][i]);
      }
      return;
    }
    for (int64_t i = 0; i < length_; i++) {
      for (int64_t j = 0; j < block.count; j++) {
        buffer[j * stride + i] = value(from[j][i * t_.step]);
      }
    }
  };
  if (dtype_ == DType::kFloat32) {
    copy(static_cast<const float*>(t_.data));
  } else {
    copy(static_cast<const uint16_t*>(t_.data));
  }
  for (int64_t j = 0; j < block.count && mask_.data; j++) {
    const uint8_t* keep = mask_.data + mask_at_(block.first + j);
    float* to = buffer + j * stride;
    for (int64_t i = 0; i < length_; i++) {
      to[i] = keep[i * mask_.step] ? to[i] : -std::numeric_limits<float>::infinity();
    }
  }
}

RowWriter::RowWriter(const EntmaxRows& rows, const MutRows& t)
    : dtype_(rows.dtype), length_(rows.length), t_(t), at_(rows, t.strides, rows.length) {}

void RowWriter::begin(const Block& block, AlignedBuffer<float>& buffer,
                      float* (&row)[kBlock]) const {
  if (t_.data == nullptr) {
    std::fill(row, row + kBlock, nullptr);
  } else if (direct()) {
    for (int64_t j = 0; j < block.count; j++) {
      row[j] = static_cast<float*>(t_.data) + at_(block.first + j);
    }
  } else {
    float* rows = reserve(buffer, kBlock * scratch_stride(length_));
    for (int64_t j = 0; j < block.count; j++) row[j] = rows + j * scratch_stride(length_);
  }
}

void RowWriter::end(const Block& block, float* (&row)[kBlock]) const {
  if (t_.data == nullptr || direct()) return;
  const auto copy = [&]<typename T>(T* data) {
    T* to[kBlock];
    for (int64_t j = 0; j < block.count; j++) to[j] = data + at_(block.first + j);
    if (t_.step == 1) {
      for (int64_t j = 0; j < block.count; j++) {
        for (int64_t i = 0; i < length_; i++) store(row[j][i], to[j] + i);
      }
      return;
    }
    for (int64_t i = 0; i < length_; i++) {
      for (int64_t j = 0; j < block.count; j++) store(row[j][i], to[j] + i * t_.step);
    }
  };
  if (dtype_ == DType::kFloat32) {
    copy(static_cast<float*>(t_.data));
  } else {
    copy(static_cast<uint16_t*>(t_.data));
  }
}

void for_blocks(const EntmaxRows& rows, int64_t step,
                const std::function<void(const Block& block, RowScratch& scratch)>& body) {
  const int64_t total = num_rows(rows);
  if (total == 0 || rows.length == 0) return;
  int64_t run = std::max<int64_t>(1, kTaskElements / rows.length);  // rows of a task
  if (step != 1) run = (run + kBlock - 1) / kBlock * kBlock;
  const int64_t tasks = (total + run - 1) / run;
  std::vector<RowScratch> scratch(max_workers(tasks));
  parallel_for(tasks, [&](int64_t task, int64_t worker) {
    const int64_t end = std::min(total, (task + 1) * run);
    for (int64_t r = task * run; r < end; r += kBlock) {
      body({r, std::min(kBlock, end - r)}, scratch[worker]);
    }
  });
}

}  // namespace hedgerow::kernels::entmax
