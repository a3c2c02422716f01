// Finds a number by the hash of a key that is stored elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace kvr::load {

// Linear probing, at most half full; deleting moves entries up, so that it never fills with
// tombstones. Grows, never shrinks. Not thread-safe.
class NumberTable {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  // The number stored under `hash` for which `equal(number)` holds, else kNone.
  template <typename Equal>
  [[nodiscard]] std::uint32_t Find(std::uint64_t hash, const Equal& equal) const {
    for (std::size_t i = Home(hash); cells_[i].number != kNone; i = Next(i)) {
      if (cells_[i].hash == hash && equal(cells_[i].number)) return cells_[i].number;
    }
    return kNone;
  }

  // `number` is not kNone and not in the table.
  void Insert(std::uint64_t hash, std::uint32_t number) {
    if (2 * (size_ + 1) > cells_.size()) Grow();
    Place({hash, number});
    ++size_;
  }

  // `number` is in the table under `hash`.
  void Erase(std::uint64_t hash, std::uint32_t number) {
    std::size_t hole = Home(hash);
    while (cells_[hole].number != number) {
      KVR_CHECK(cells_[hole].number != kNone);
      hole = Next(hole);
    }
    // A cell behind the hole moves into it unless that would put it before its home.
    for (std::size_t i = Next(hole); cells_[i].number != kNone; i = Next(i)) {
      if (Distance(Home(cells_[i].hash), i) < Distance(hole, i)) continue;
      cells_[hole] = cells_[i];
      hole = i;
    }
    cells_[hole].number = kNone;
    --size_;
  }

 private:
  struct Cell {
    std::uint64_t hash = 0;
    std::uint32_t number = kNone;
  };

  [[nodiscard]] std::size_t Home(std::uint64_t hash) const {
    const std::uint64_t mixed = hash * 0x9E3779B97F4A7C15u;
    return (mixed ^ (mixed >> 32)) & (cells_.size() - 1);
  }
  [[nodiscard]] std::size_t Next(std::size_t i) const { return (i + 1) & (cells_.size() - 1); }
  [[nodiscard]] std::size_t Distance(std::size_t from, std::size_t to) const {
    return (to - from) & (cells_.size() - 1);
  }
  void Place(Cell cell) {
    std::size_t i = Home(cell.hash);
    while (cells_[i].number != kNone)
      i = Next(i);
    cells_[i] = cell;
  }
  void Grow() {
    std::vector<Cell> old(2 * cells_.size());
    old.swap(cells_);
    for (const Cell& cell : old) {
      if (cell.number != kNone) Place(cell);
    }
  }

  std::vector<Cell> cells_ = std::vector<Cell>(64);
  std::size_t size_ = 0;
};

}  // namespace kvr::load
