// What single ranks call the blocks of a run, where they do not use the common name.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "index/run_planes.h"
#include "model/ids.h"

namespace kvr::index {

// One rank's own names in one run. One thread writes while others read: a reader sees the name
// before or after a change.
class AliasColumn {
 public:
  AliasColumn(std::uint32_t slot, Stretch room)
      : slot_(slot), room_(room), cells_(std::make_unique<Cell[]>(room.size())) {}

  [[nodiscard]] std::uint32_t slot() const { return slot_; }
  [[nodiscard]] Stretch room() const { return room_; }
  [[nodiscard]] std::optional<EngineHash> At(std::uint32_t depth) const {
    if (!room_.Has(depth)) return std::nullopt;
    const Cell& cell = cells_[depth - room_.begin];
    // Pairs with Set: the name was stored first.
    if (!cell.in_use.load(std::memory_order_acquire)) return std::nullopt;
    return static_cast<EngineHash>(cell.name.load(std::memory_order_relaxed));
  }

  void Set(std::uint32_t depth, EngineHash name) {
    Cell& cell = cells_[depth - room_.begin];
    cell.name.store(Raw(name), std::memory_order_relaxed);
    if (!cell.in_use.load(std::memory_order_relaxed)) ++used_;
    cell.in_use.store(true, std::memory_order_release);
  }
  void Clear(std::uint32_t depth) {
    Cell& cell = cells_[depth - room_.begin];
    if (cell.in_use.load(std::memory_order_relaxed)) --used_;
    cell.in_use.store(false, std::memory_order_release);
  }
  void CopyFrom(const AliasColumn& other) {
    const std::uint32_t end = std::min(room_.end, other.room_.end);
    for (std::uint32_t depth = std::max(room_.begin, other.room_.begin); depth < end; ++depth) {
      if (const auto name = other.At(depth)) Set(depth, *name);
    }
  }

  [[nodiscard]] std::uint32_t used() const { return used_; }
  [[nodiscard]] std::size_t bytes() const {
    return sizeof(AliasColumn) + room_.size() * sizeof(Cell);
  }

 private:
  struct Cell {
    std::atomic<std::uint64_t> name{0};
    std::atomic<bool> in_use{false};
  };

  std::uint32_t slot_;
  Stretch room_;
  std::uint32_t used_ = 0;
  std::unique_ptr<Cell[]> cells_;
};

// The columns of a run, ordered by slot. Does not change: see RunStore::SetAlias.
struct AliasList {
  std::vector<AliasColumn*> columns;

  [[nodiscard]] AliasColumn* Find(std::uint32_t slot) const {
    const auto at = std::lower_bound(
        columns.begin(), columns.end(), slot,
        [](const AliasColumn* column, std::uint32_t wanted) { return column->slot() < wanted; });
    return at != columns.end() && (*at)->slot() == slot ? *at : nullptr;
  }
  [[nodiscard]] std::size_t bytes() const {
    return sizeof(AliasList) + columns.capacity() * sizeof(columns[0]);
  }
};

}  // namespace kvr::index
