#include "publish/block_table.h"

#include <algorithm>

namespace kvr::publish {

std::size_t BlockTable::PlaceOf(EngineHash name) const {
  const std::size_t mask = entries_.size() - 1;
  std::size_t place = HomeOf(name);
  while (entries_[place].used && entries_[place].name != name)
    place = (place + 1) & mask;
  return place;
}

const BlockEntry* BlockTable::Find(EngineHash name) const {
  if (entries_.empty()) return nullptr;
  const BlockEntry& entry = entries_[PlaceOf(name)];
  return entry.used ? &entry : nullptr;
}

BlockEntry* BlockTable::Find(EngineHash name) {
  if (entries_.empty()) return nullptr;
  BlockEntry& entry = entries_[PlaceOf(name)];
  return entry.used ? &entry : nullptr;
}

BlockEntry* BlockTable::Add(EngineHash name) {
  if (BlockEntry* const found = Find(name)) return found;
  if (size_ >= entries_max_) return nullptr;
  if ((size_ + 1) * 4 > entries_.size() * 3) Grow();
  BlockEntry& entry = entries_[PlaceOf(name)];
  entry = BlockEntry{};
  entry.name = name;
  entry.used = true;
  ++size_;
  return &entry;
}

void BlockTable::Erase(BlockEntry* entry) {
  const std::size_t mask = entries_.size() - 1;
  std::size_t hole = static_cast<std::size_t>(entry - entries_.data());
  // What could not have its own place because of this one moves up, so that no search ends here.
  for (std::size_t at = (hole + 1) & mask; entries_[at].used; at = (at + 1) & mask) {
    const std::size_t home = HomeOf(entries_[at].name);
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    entries_[hole] = entries_[at];
    hole = at;
  }
  entries_[hole] = BlockEntry{};
  --size_;
}

void BlockTable::LetGo(EngineHash name, RecentNames& recent) {
  const auto forgotten = recent.Push(name);
  if (!forgotten) return;
  BlockEntry* const entry = Find(*forgotten);
  if (entry != nullptr && !entry->held()) Erase(entry);
}

void BlockTable::Clear() {
  std::fill(entries_.begin(), entries_.end(), BlockEntry{});
  size_ = 0;
}

void BlockTable::Grow() {
  constexpr std::size_t kFirst = 1'024;
  std::vector<BlockEntry> old(std::max(kFirst, entries_.size() * 2));
  old.swap(entries_);
  shift_ = 64 - static_cast<unsigned>(std::countr_zero(entries_.size()));
  for (const BlockEntry& entry : old) {
    if (entry.used) entries_[PlaceOf(entry.name)] = entry;
  }
}

}  // namespace kvr::publish
