// Items addressed by a 32-bit number that stay where they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace kvr::index {

// Numbers begin at 1; 0 means none. Freed numbers are used again first. Growth moves nothing, and
// the last Free gives all memory back. Not thread-safe.
template <typename T, std::uint32_t kChunk>
class Slab {
  static_assert((kChunk & (kChunk - 1)) == 0, "a power of two turns division into a shift");

 public:
  [[nodiscard]] T& operator[](std::uint32_t id) { return chunks_[id / kChunk][id % kChunk]; }
  [[nodiscard]] const T& operator[](std::uint32_t id) const {
    return chunks_[id / kChunk][id % kChunk];
  }

  std::uint32_t Add() {
    if (!free_.empty()) {
      const std::uint32_t id = free_.back();
      free_.pop_back();
      return id;
    }
    if (end_ / kChunk == chunks_.size()) chunks_.push_back(std::make_unique<T[]>(kChunk));
    return end_++;
  }

  void Free(std::uint32_t id) {
    (*this)[id] = T{};
    free_.push_back(id);
    if (size() == 0) *this = Slab();
  }

  [[nodiscard]] std::size_t size() const { return end_ - 1 - free_.size(); }
  // One beyond the largest number ever in use; freed items in between equal T{}.
  [[nodiscard]] std::uint32_t end() const { return end_; }
  [[nodiscard]] std::size_t bytes() const {
    return chunks_.size() * kChunk * sizeof(T) + free_.capacity() * sizeof(std::uint32_t);
  }

 private:
  std::vector<std::unique_ptr<T[]>> chunks_;
  std::vector<std::uint32_t> free_;
  std::uint32_t end_ = 1;
};

}  // namespace kvr::index
