// An array that grows without moving.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "index/heap_bytes.h"

namespace kvr::index {

// Chunks that double in size, so that any item is two loads away. One thread grows it while others
// read items below the size they were told of. Memory goes back with the array only.
template <typename T>
class StableArray {
 public:
  [[nodiscard]] T& operator[](std::size_t i) {
    const std::size_t x = i + kFirst;
    const auto chunk = static_cast<std::size_t>(std::bit_width(x)) - kFirstBits - 1;
    return chunks_[chunk].load(std::memory_order_acquire)[x - (kFirst << chunk)];
  }
  [[nodiscard]] const T& operator[](std::size_t i) const {
    return const_cast<StableArray&>(*this)[i];
  }

  // Makes items below `size` usable; new ones are T{}.
  void Reserve(std::size_t size) {
    while (capacity_ < size) {
      const std::size_t chunk_size = kFirst << owned_;
      storage_[owned_] = std::make_unique<T[]>(chunk_size);
      // Pairs with the load above: who reads the pointer sees the items made.
      chunks_[owned_].store(storage_[owned_].get(), std::memory_order_release);
      ++owned_;
      capacity_ += chunk_size;
      heap_ += HeapBytes(chunk_size * sizeof(T));
    }
  }

  [[nodiscard]] std::size_t bytes() const { return heap_; }

 private:
  static constexpr std::size_t kFirstBits = 6;
  static constexpr std::size_t kFirst = std::size_t{1} << kFirstBits;
  static constexpr std::size_t kChunks = 27;

  std::array<std::atomic<T*>, kChunks> chunks_{};
  std::array<std::unique_ptr<T[]>, kChunks> storage_;
  std::size_t owned_ = 0;
  std::size_t capacity_ = 0;
  std::size_t heap_ = 0;
};

}  // namespace kvr::index
