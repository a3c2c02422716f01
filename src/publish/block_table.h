// The blocks of one rank by name. Private to the module.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "model/ids.h"
#include "model/tier.h"

namespace kvr::publish {

// Sources as bits.
using SourceSet = std::uint8_t;

struct BlockEntry {
  EngineHash name{};
  EngineHash parent{};
  BlockHash local{};
  std::array<SourceSet, kTierCount> holders{};  // who has it in which tier
  bool used : 1 = false;                        // the entry is one
  bool has_parent : 1 = false;
  bool eligible : 1 = false;  // every store of it was

  [[nodiscard]] bool held() const {
    return (holders[0] | holders[1] | holders[2] | holders[3]) != 0;
  }
};
static_assert(sizeof(BlockEntry) == 32);

// The names that were let go last. Not thread-safe.
class RecentNames {
 public:
  explicit RecentNames(std::size_t names_max) : names_max_(names_max) { names_.reserve(names_max); }

  // The name that has to be forgotten for it, which is itself when none is kept.
  std::optional<EngineHash> Push(EngineHash name) {
    if (names_max_ == 0) return name;
    if (names_.size() < names_max_) {
      names_.push_back(name);
      return std::nullopt;
    }
    const EngineHash oldest = std::exchange(names_[oldest_], name);
    oldest_ = (oldest_ + 1) % names_.size();
    return oldest;
  }
  void Clear() {
    names_.clear();
    oldest_ = 0;
  }

 private:
  const std::size_t names_max_;
  std::size_t oldest_ = 0;
  std::vector<EngineHash> names_;  // a ring
};

// Open addressing with linear probing. Grows by doubling and never shrinks. Pointers are valid
// until the next Add, Erase or Clear. Not thread-safe.
class BlockTable {
 public:
  explicit BlockTable(std::size_t entries_max) : entries_max_(entries_max) {}

  // Null when there is none.
  BlockEntry* Find(EngineHash name);
  [[nodiscard]] const BlockEntry* Find(EngineHash name) const;
  // The entry, made when there is none; null when the table is full.
  BlockEntry* Add(EngineHash name);
  void Erase(BlockEntry* entry);
  // The entry's block is held no more: it stays for as long as `recent` has its name.
  void LetGo(EngineHash name, RecentNames& recent);
  void Clear();

  [[nodiscard]] std::size_t size() const { return size_; }
  // With unused ones between.
  [[nodiscard]] const std::vector<BlockEntry>& entries() const { return entries_; }
  std::vector<BlockEntry>& entries() { return entries_; }

 private:
  // The upper bits of the product depend on all of the name.
  [[nodiscard]] std::size_t HomeOf(EngineHash name) const {
    return static_cast<std::size_t>(Raw(name) * 0x9E3779B97F4A7C15u >> shift_);
  }
  // Of the name, or where it would go.
  [[nodiscard]] std::size_t PlaceOf(EngineHash name) const;
  void Grow();

  const std::size_t entries_max_;
  std::size_t size_ = 0;
  unsigned shift_ = 64;
  std::vector<BlockEntry> entries_;  // a power of two, at most three quarters used
};

}  // namespace kvr::publish
