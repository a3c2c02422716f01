#include "index/child_table.h"

#include <bit>

#include "base/check.h"

namespace kvr::index {

void ChildTable::Put(const Table& table, std::uint64_t entry) {
  std::size_t i = HomeOf(TagOf(entry)) & table.mask;
  while (table[i].load(std::memory_order_relaxed) != kEmpty)
    i = (i + 1) & table.mask;
  table[i].store(entry, std::memory_order_release);
}

ChildTable::TablePtr ChildTable::Rebuild(std::size_t segment, std::uint32_t live) {
  constexpr std::size_t kSmallest = 4;
  Segment& here = segments_[segment];
  std::unique_ptr<Table, Table::Deleter> table;
  if (live > 0) {
    // A third to two thirds full, marks not counted: rebuilds stay rare beside inserts.
    const std::size_t size = std::bit_ceil(live + live / 2 + kSmallest);
    table.reset(new (::operator new(Table::BytesFor(size))) Table(size - 1));
    for (std::size_t i = 0; i < size; ++i)
      new (&(*table)[i]) std::atomic<std::uint64_t>(kEmpty);
    for (std::size_t i = 0; here.table && i <= here.table->mask; ++i) {
      const std::uint64_t entry = (*here.table)[i].load(std::memory_order_relaxed);
      if (entry != kEmpty && entry != kErased) Put(*table, entry);
    }
    heap_ += table->bytes();
  }
  if (here.table) heap_ -= here.table->bytes();
  here.used = here.live;
  table.swap(here.table);
  current_[segment].store(here.table.get(), std::memory_order_seq_cst);
  return TablePtr(table.release());
}

ChildTable::TablePtr ChildTable::Insert(std::uint64_t hash, std::uint32_t id) {
  const std::size_t segment = SegmentOf(hash);
  Segment& here = segments_[segment];
  TablePtr old;
  if (here.table == nullptr || (here.used + 1) * 4 > (here.table->mask + 1) * 3)
    old = Rebuild(segment, here.live + 1);
  Put(*here.table, TagOf(hash) | id);
  ++here.used;
  ++here.live;
  return old;
}

ChildTable::TablePtr ChildTable::Erase(std::uint64_t hash, std::uint32_t id) {
  const std::size_t segment = SegmentOf(hash);
  Segment& here = segments_[segment];
  const Table& table = *here.table;
  const std::uint64_t wanted = TagOf(hash) | id;
  std::size_t i = HomeOf(TagOf(hash)) & table.mask;
  while (table[i].load(std::memory_order_relaxed) != wanted) {
    KVR_DCHECK(table[i].load(std::memory_order_relaxed) != kEmpty);
    i = (i + 1) & table.mask;
  }
  const bool last = table[(i + 1) & table.mask].load(std::memory_order_relaxed) == kEmpty;
  table[i].store(last ? kEmpty : kErased, std::memory_order_release);
  if (last) --here.used;
  --here.live;
  const bool sparse = table.mask > 16 && here.live < table.mask / 8;
  return here.live == 0 || sparse ? Rebuild(segment, here.live) : nullptr;
}

}  // namespace kvr::index
