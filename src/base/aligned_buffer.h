// Scratch memory of kernels: 64-byte aligned, uninitialised, NaN-filled in builds with
// HEDGEROW_POISON, so that reading before writing shows.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "base/memory.h"

namespace hedgerow {

template <typename T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t size) { resize(size); }
  AlignedBuffer(AlignedBuffer&& other) noexcept { *this = std::move(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer() { std::free(data_); }

  // Contents are lost; nothing is initialised. Throws std::bad_alloc, and is empty then, for memory
  // that cannot be had.
  void resize(int64_t size) {
    std::free(std::exchange(data_, nullptr));
    size_ = 0;
    if (size == 0) return;
    if (size < 0 || size > std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(T)))
      throw std::bad_alloc();
    const size_t bytes = static_cast<size_t>(size) * sizeof(T);
    data_ = static_cast<T*>(allocate_aligned(bytes));
    size_ = size;
#ifdef HEDGEROW_POISON
    std::memset(data_, 0xff, bytes);  // all ones is a NaN in every floating type
#endif
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
  int64_t size_ = 0;
};

// Scratch that only grows, so that a worker keeps it from task to task.
template <typename T>
T* reserve(AlignedBuffer<T>& buffer, int64_t size) {
  if (buffer.size() < size) buffer.resize(size);
  return buffer.data();
}

}  // namespace hedgerow
