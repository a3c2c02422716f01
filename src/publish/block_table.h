// The blocks of one rank by name. Private to the module.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
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

// What a source calls a block, and what the block is called to others.
struct NameEntry {
  EngineHash name{};
  EngineHash told{};        // the sequence hash, or `name` itself
  std::uint8_t tiers = 0;   // that hold it, a bit each
  bool used : 1 = false;    // the entry is one
  bool placed : 1 = false;  // `told` is a sequence hash

  [[nodiscard]] bool held() const { return tiers != 0; }
};
static_assert(sizeof(NameEntry) == 24);

// How many names of a source mean one block, whose `name` is what it is called to others.
struct MeaningEntry {
  EngineHash name{};
  std::array<std::uint32_t, kTierCount> names{};  // ... and hold it in which tier
  bool used = false;                              // the entry is one

  [[nodiscard]] bool held() const { return (names[0] | names[1] | names[2] | names[3]) != 0; }
};
static_assert(sizeof(MeaningEntry) == 32);

// The names that were let go last, oldest first. Not thread-safe.
class RecentNames {
 public:
  explicit RecentNames(std::size_t names_max) : names_(names_max) {}

  // The name that has to be forgotten for it, which is itself when none is kept.
  std::optional<EngineHash> Push(EngineHash name) {
    if (names_.empty()) return name;
    std::optional<EngineHash> oldest;
    if (count_ == names_.size()) oldest = Pop();
    names_[(oldest_ + count_++) % names_.size()] = name;
    return oldest;
  }
  // The oldest, which is kept no more.
  std::optional<EngineHash> Pop() {
    if (count_ == 0) return std::nullopt;
    const EngineHash oldest = names_[oldest_];
    oldest_ = (oldest_ + 1) % names_.size();
    --count_;
    return oldest;
  }
  void Clear() { count_ = 0; }

 private:
  std::vector<EngineHash> names_;  // a ring
  std::size_t oldest_ = 0;
  std::size_t count_ = 0;
};

// Open addressing with linear probing. Grows by doubling and never shrinks. Pointers are valid
// until the next Add, Erase or Clear. Not thread-safe.
template <typename Entry>
class EntryTable {
 public:
  explicit EntryTable(std::size_t entries_max) : entries_max_(entries_max) {}

  // Null when there is none.
  Entry* Find(EngineHash name);
  [[nodiscard]] const Entry* Find(EngineHash name) const;
  // The entry, made when there is none; for a new one in a full table the oldest of `recent` that
  // nobody holds gives way. Null when all are held.
  Entry* Add(EngineHash name, RecentNames& recent);
  void Erase(Entry* entry);
  // The entry's block is held no more: it stays for as long as `recent` has its name.
  void LetGo(EngineHash name, RecentNames& recent);
  void Clear();

  [[nodiscard]] std::size_t size() const { return size_; }
  // With unused ones between.
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  std::vector<Entry>& entries() { return entries_; }

 private:
  // The upper bits of the product depend on all of the name.
  [[nodiscard]] std::size_t HomeOf(EngineHash name) const {
    return static_cast<std::size_t>(Raw(name) * 0x9E3779B97F4A7C15u >> shift_);
  }
  // Of the name, or where it would go.
  [[nodiscard]] std::size_t PlaceOf(EngineHash name) const;
  void Grow();
  bool ForgetOne(RecentNames& recent);

  const std::size_t entries_max_;
  std::size_t size_ = 0;
  unsigned shift_ = 64;
  std::vector<Entry> entries_;  // a power of two, at most three quarters used
};

extern template class EntryTable<BlockEntry>;
extern template class EntryTable<NameEntry>;
extern template class EntryTable<MeaningEntry>;

using BlockTable = EntryTable<BlockEntry>;
using NameTable = EntryTable<NameEntry>;
using MeaningTable = EntryTable<MeaningEntry>;

}  // namespace kvr::publish
