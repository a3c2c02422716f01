// What single ranks call the blocks of a run, where they do not use the common name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "index/heap_bytes.h"
#include "index/run_planes.h"
#include "model/ids.h"

namespace kvr::index {

// One rank's own names in one run. Names of blocks that a published state has do not change any
// more: see RunStore::EditAliases.
class AliasColumn {
 public:
  AliasColumn(std::uint32_t slot, Stretch room) : slot_(slot), room_(room), cells_(room.size()) {}

  [[nodiscard]] std::uint32_t slot() const { return slot_; }
  [[nodiscard]] std::optional<EngineHash> At(std::uint32_t depth) const {
    if (!room_.Has(depth)) return std::nullopt;
    return cells_[depth - room_.begin];
  }

  void Set(std::uint32_t depth, std::optional<EngineHash> name) {
    std::optional<EngineHash>& cell = cells_[depth - room_.begin];
    used_ += (name ? 1u : 0u) - (cell ? 1u : 0u);
    cell = name;
  }
  // The names of `blocks`, as far as both columns have room for them.
  void CopyFrom(const AliasColumn& other, Stretch blocks) {
    const std::uint32_t begin = std::max({room_.begin, other.room_.begin, blocks.begin});
    const std::uint32_t end = std::min({room_.end, other.room_.end, blocks.end});
    for (std::uint32_t depth = begin; depth < end; ++depth)
      Set(depth, other.At(depth));
  }

  [[nodiscard]] std::uint32_t used() const { return used_; }
  // Queries may read the names of blocks before `end`.
  void SetPublished(std::uint32_t end) { published_end_ = std::max(published_end_, end); }
  [[nodiscard]] bool MaySet(std::uint32_t depth) const {
    return room_.Has(depth) && depth >= published_end_;
  }
  [[nodiscard]] std::size_t bytes() const {
    return HeapBytes(sizeof(AliasColumn)) + HeapBytes(cells_.capacity() * sizeof(cells_[0]));
  }

 private:
  const std::uint32_t slot_;
  const Stretch room_;
  std::uint32_t used_ = 0;
  std::uint32_t published_end_ = 0;
  std::vector<std::optional<EngineHash>> cells_;
};

// The columns of a run, ordered by slot. Does not change.
struct AliasList {
  std::vector<AliasColumn*> columns;

  [[nodiscard]] AliasColumn* Find(std::uint32_t slot) const {
    const auto at = std::lower_bound(
        columns.begin(), columns.end(), slot,
        [](const AliasColumn* column, std::uint32_t wanted) { return column->slot() < wanted; });
    return at != columns.end() && (*at)->slot() == slot ? *at : nullptr;
  }
  [[nodiscard]] std::size_t bytes() const {
    return HeapBytes(sizeof(AliasList)) + HeapBytes(columns.capacity() * sizeof(void*));
  }
};

}  // namespace kvr::index
