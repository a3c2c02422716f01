#include "index/child_table.h"

#include <bit>

#include "base/check.h"

namespace kvr::index {

std::unique_ptr<ChildTable::Table> ChildTable::MakeTable(std::size_t live) {
  constexpr std::size_t kSmallest = 16;
  // A third to two thirds full, marks not counted: rebuilds stay rare beside inserts.
  const std::size_t size = std::bit_ceil(live + live / 2 + kSmallest);
  auto table = std::make_unique<Table>();
  table->mask = size - 1;
  table->entries = std::make_unique<std::atomic<std::uint64_t>[]>(size);
  return table;
}

void ChildTable::Erase(std::uint64_t hash, std::uint32_t id) {
  const std::uint64_t wanted = (hash >> 32 << 32) | id;
  std::size_t i = hash & owned_->mask;
  while (owned_->entries[i].load(std::memory_order_relaxed) != wanted) {
    KVR_DCHECK(owned_->entries[i].load(std::memory_order_relaxed) != kEmpty);
    i = (i + 1) & owned_->mask;
  }
  const std::size_t next = (i + 1) & owned_->mask;
  const bool last = owned_->entries[next].load(std::memory_order_relaxed) == kEmpty;
  owned_->entries[i].store(last ? kEmpty : kErased, std::memory_order_release);
  if (last) --used_;
  --live_;
}

}  // namespace kvr::index
