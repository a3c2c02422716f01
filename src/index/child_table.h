// Finds a run by where it hangs and what it begins with.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "index/hash_mix.h"
#include "model/ids.h"

namespace kvr::index {

// Open addressing; an entry is 32 bits of the hash and a number, only a hint that the caller
// verifies. One thread writes while others probe: an erased entry leaves a mark, nothing moves, and
// a rebuilt table takes the place of the old one, which the writer keeps for as long as somebody
// may probe it.
class ChildTable {
 public:
  explicit ChildTable(std::uint64_t seed) : seed_(seed) {}

  [[nodiscard]] std::uint64_t Hash(std::uint32_t parent, std::uint32_t depth,
                                   BlockHash local) const {
    return Mix(seed_, Raw(local), (std::uint64_t{parent} << 32) | depth);
  }

  // Hands over entries of this hash until `take` returns true.
  template <typename Take>
  void Probe(std::uint64_t hash, Take&& take) const {
    const Table* const table = current_.load(std::memory_order_seq_cst);
    if (table == nullptr) return;
    for (std::size_t i = hash & table->mask;; i = (i + 1) & table->mask) {
      const std::uint64_t entry = table->entries[i].load(std::memory_order_acquire);
      if (entry == kEmpty) return;
      if (entry >> 32 == hash >> 32 && entry != kErased && take(static_cast<std::uint32_t>(entry)))
        return;
    }
  }

  // Tables that were replaced are handed over as void pointers to Free.
  struct Table {
    std::size_t mask = 0;
    std::unique_ptr<std::atomic<std::uint64_t>[]> entries;
    [[nodiscard]] std::size_t bytes() const {
      return sizeof(Table) + (mask + 1) * sizeof(entries[0]);
    }
  };

  // `hash_of(id)` gives the hash of an entry, for a rebuild. Returns the table that was replaced.
  template <typename HashOf>
  std::unique_ptr<const Table> Insert(std::uint64_t hash, std::uint32_t id, HashOf&& hash_of) {
    std::unique_ptr<const Table> old;
    if (owned_ == nullptr || (used_ + 1) * 4 > (owned_->mask + 1) * 3) old = Rebuild(hash_of);
    Put(*owned_, hash, id);
    ++used_;
    ++live_;
    return old;
  }
  void Erase(std::uint64_t hash, std::uint32_t id);

  [[nodiscard]] std::size_t bytes() const { return owned_ ? owned_->bytes() : 0; }

 private:
  static constexpr std::uint64_t kEmpty = 0;
  static constexpr std::uint64_t kErased = 0xFFFF'FFFF;  // never a number in use

  static void Put(Table& table, std::uint64_t hash, std::uint32_t id) {
    std::size_t i = hash & table.mask;
    while (table.entries[i].load(std::memory_order_relaxed) != kEmpty)
      i = (i + 1) & table.mask;
    table.entries[i].store((hash >> 32 << 32) | id, std::memory_order_release);
  }

  template <typename HashOf>
  std::unique_ptr<const Table> Rebuild(HashOf&& hash_of) {
    auto table = MakeTable(live_ + 1);
    for (std::size_t i = 0; owned_ && i <= owned_->mask; ++i) {
      const std::uint64_t entry = owned_->entries[i].load(std::memory_order_relaxed);
      if (entry == kEmpty || entry == kErased) continue;
      const auto id = static_cast<std::uint32_t>(entry);
      Put(*table, hash_of(id), id);
    }
    used_ = live_;
    table.swap(owned_);
    current_.store(owned_.get(), std::memory_order_seq_cst);
    return table;
  }
  static std::unique_ptr<Table> MakeTable(std::size_t live);

  std::uint64_t seed_;
  std::atomic<const Table*> current_{nullptr};
  std::unique_ptr<Table> owned_;  // the same
  std::size_t used_ = 0;          // marks included
  std::size_t live_ = 0;
};

}  // namespace kvr::index
