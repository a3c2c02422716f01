// Items addressed by a 32-bit number that stay where they are.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "index/heap_bytes.h"

namespace kvr::index {

// Numbers begin at 1; 0 means none. The smallest free number is used first, so that the rest
// empties and its memory goes back: chunk by chunk, one is kept in reserve. Growth moves nothing.
// Not thread-safe.
template <typename T, std::uint32_t kChunk>
class Slab {
  static_assert(kChunk >= 64 && (kChunk & (kChunk - 1)) == 0,
                "a power of two turns division into a shift");

 public:
  // The number must be in use, or have been while no other was freed since.
  [[nodiscard]] T& operator[](std::uint32_t id) {
    return chunks_.data()[id / kChunk].get()->items[id % kChunk];
  }
  [[nodiscard]] const T& operator[](std::uint32_t id) const {
    return chunks_.data()[id / kChunk].get()->items[id % kChunk];
  }

  std::uint32_t Add() {
    const std::uint32_t at = ChunkWithRoom();
    Chunk& chunk = *chunks_[at];
    std::uint32_t word = 0;
    while (~chunk.used[word] == 0)
      ++word;
    const auto bit = static_cast<std::uint32_t>(std::countr_one(chunk.used[word]));
    chunk.used[word] |= std::uint64_t{1} << bit;
    ++size_;
    if (++chunk.count == kChunk) SetRoom(at, false);
    return at * kChunk + word * 64 + bit;
  }

  void Free(std::uint32_t id) {
    const std::uint32_t at = id / kChunk;
    const std::uint32_t i = id % kChunk;
    Chunk& chunk = *chunks_[at];
    chunk.items[i] = T{};
    chunk.used[i / 64] &= ~(std::uint64_t{1} << (i % 64));
    --chunk.count;
    SetRoom(at, true);
    if (--size_ == 0) {
      *this = Slab();
    } else if (chunk.count == 0) {
      GiveBack(at);
    }
  }

  [[nodiscard]] bool Has(std::uint32_t id) const {
    const std::uint32_t at = id / kChunk;
    const std::uint32_t i = id % kChunk;
    return id != 0 && at < chunks_.size() && chunks_[at] &&
           ((chunks_[at]->used[i / 64] >> (i % 64)) & 1u) != 0;
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  // One beyond the largest number that may be in use.
  [[nodiscard]] std::uint32_t end() const {
    return static_cast<std::uint32_t>(chunks_.size()) * kChunk;
  }
  [[nodiscard]] std::size_t bytes() const {
    return (made_ + (reserve_ ? 1 : 0)) * HeapBytes(sizeof(Chunk)) +
           HeapBytes(chunks_.capacity() * sizeof(chunks_[0])) +
           HeapBytes(room_.capacity() * sizeof(room_[0]));
  }

 private:
  struct Chunk {
    std::array<T, kChunk> items{};
    std::array<std::uint64_t, kChunk / 64> used{};
    std::uint32_t count = 0;  // bits in `used`; number 0 is one of them
  };

  void SetRoom(std::uint32_t chunk, bool room) {
    const std::uint64_t bit = std::uint64_t{1} << (chunk % 64);
    std::uint64_t& word = room_[chunk / 64];
    word = room ? word | bit : word & ~bit;
  }

  // The first with a free number.
  std::uint32_t ChunkWithRoom() {
    std::size_t word = 0;
    while (word < room_.size() && room_[word] == 0)
      ++word;
    if (word == room_.size()) room_.push_back(~std::uint64_t{0});
    const auto at = static_cast<std::uint32_t>(word * 64) +
                    static_cast<std::uint32_t>(std::countr_zero(room_[word]));
    while (chunks_.size() <= at)
      chunks_.emplace_back();
    if (!chunks_[at]) {
      chunks_[at] = reserve_ ? std::move(reserve_) : std::make_unique<Chunk>();
      ++made_;
      if (at == 0) {
        chunks_[0]->used[0] = 1;
        chunks_[0]->count = 1;
      }
    }
    return at;
  }

  // An empty chunk.
  void GiveBack(std::uint32_t at) {
    reserve_ = std::move(chunks_[at]);
    --made_;
    while (!chunks_.back())
      chunks_.pop_back();
    room_.resize((chunks_.size() + 63) / 64);
    if (chunks_.capacity() > 4 * chunks_.size() + 16) chunks_.shrink_to_fit();
  }

  std::vector<std::unique_ptr<Chunk>> chunks_;  // null: empty
  std::vector<std::uint64_t> room_;             // a bit a chunk: it is not full
  std::unique_ptr<Chunk> reserve_;              // an empty one
  std::size_t made_ = 0;                        // in `chunks_`
  std::size_t size_ = 0;
};

}  // namespace kvr::index
