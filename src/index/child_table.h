// Finds a run by where it hangs and what it begins with.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "index/hash_mix.h"
#include "index/heap_bytes.h"
#include "index/prefetch.h"
#include "model/ids.h"

namespace kvr::index {

// Open addressing in segments that grow and shrink alone, so that no event waits for all of them.
// An entry is 32 bits of the hash and a number, only a hint that the caller verifies. One thread
// writes while others probe: an erased entry leaves a mark, nothing moves, and a rebuilt segment
// takes the place of the old one, which the writer keeps for as long as somebody may probe it.
class ChildTable {
 public:
  // The entries follow the struct.
  class Table {
   public:
    struct Deleter {
      void operator()(const Table* table) const { ::operator delete(const_cast<Table*>(table)); }
    };

    const std::uint64_t mask;  // its size less one, a power of two
    [[nodiscard]] std::atomic<std::uint64_t>& operator[](std::size_t i) const {
      return reinterpret_cast<std::atomic<std::uint64_t>*>(const_cast<Table*>(this) + 1)[i];
    }
    [[nodiscard]] std::size_t bytes() const { return HeapBytes(BytesFor(mask + 1)); }

   private:
    friend class ChildTable;
    explicit Table(std::uint64_t mask_in) : mask(mask_in) {}
    static std::size_t BytesFor(std::size_t size) {
      return sizeof(Table) + size * sizeof(std::atomic<std::uint64_t>);
    }
  };
  using TablePtr = std::unique_ptr<const Table, Table::Deleter>;

  explicit ChildTable(std::uint64_t seed) : seed_(seed) {}

  [[nodiscard]] std::uint64_t Hash(std::uint32_t parent, std::uint32_t depth,
                                   BlockHash local) const {
    return Mix(seed_, Raw(local), (std::uint64_t{parent} << 32) | depth);
  }

  // Hands over entries of this hash until `take` returns true.
  template <typename Take>
  void Probe(std::uint64_t hash, Take&& take) const {
    const Table* const table = current_[SegmentOf(hash)].load(std::memory_order_seq_cst);
    if (table == nullptr) return;
    const std::uint64_t tag = TagOf(hash);
    for (std::size_t i = HomeOf(tag) & table->mask;; i = (i + 1) & table->mask) {
      const std::uint64_t entry = (*table)[i].load(std::memory_order_acquire);
      if (entry == kEmpty) return;
      if (TagOf(entry) == tag && entry != kErased && take(static_cast<std::uint32_t>(entry)))
        return;
    }
  }

  void Prefetch(std::uint64_t hash) const {
    const Table* const table = current_[SegmentOf(hash)].load(std::memory_order_seq_cst);
    if (table != nullptr) index::Prefetch(&(*table)[HomeOf(TagOf(hash)) & table->mask]);
  }
  // What Probe hands over first, likely; 0: do not know.
  [[nodiscard]] std::uint32_t Hint(std::uint64_t hash) const {
    const Table* const table = current_[SegmentOf(hash)].load(std::memory_order_seq_cst);
    if (table == nullptr) return 0;
    const std::uint64_t entry =
        (*table)[HomeOf(TagOf(hash)) & table->mask].load(std::memory_order_acquire);
    return TagOf(entry) == TagOf(hash) && entry != kErased ? static_cast<std::uint32_t>(entry) : 0;
  }

  // Both return the table that was replaced, if any.
  [[nodiscard]] TablePtr Insert(std::uint64_t hash, std::uint32_t id);
  [[nodiscard]] TablePtr Erase(std::uint64_t hash, std::uint32_t id);  // it must be there

  [[nodiscard]] std::size_t bytes() const { return heap_; }

 private:
  static constexpr unsigned kSegmentBits = 6;
  static constexpr std::size_t kSegments = std::size_t{1} << kSegmentBits;
  static constexpr std::uint64_t kEmpty = 0;
  static constexpr std::uint64_t kErased = 0xFFFF'FFFF;  // never a number in use

  struct Segment {
    std::unique_ptr<Table, Table::Deleter> table;
    std::uint32_t used = 0;  // marks included
    std::uint32_t live = 0;
  };

  static std::size_t SegmentOf(std::uint64_t hash) { return hash >> (64 - kSegmentBits); }
  static std::uint64_t TagOf(std::uint64_t hash) { return hash >> 32 << 32; }
  // From what an entry keeps, so that a rebuild asks for nothing.
  static std::uint32_t HomeOf(std::uint64_t tag) { return static_cast<std::uint32_t>(tag >> 32); }

  static void Put(const Table& table, std::uint64_t entry);
  TablePtr Rebuild(std::size_t segment, std::uint32_t live);

  std::uint64_t seed_;
  std::array<std::atomic<const Table*>, kSegments> current_{};
  std::array<Segment, kSegments> segments_;  // own the same
  std::size_t heap_ = 0;
};

}  // namespace kvr::index
