#include "publish/block_table.h"

#include <algorithm>

namespace kvr::publish {

template <typename Entry>
std::size_t EntryTable<Entry>::PlaceOf(EngineHash name) const {
  const std::size_t mask = entries_.size() - 1;
  std::size_t place = HomeOf(name);
  while (entries_[place].used && entries_[place].name != name)
    place = (place + 1) & mask;
  return place;
}

template <typename Entry>
const Entry* EntryTable<Entry>::Find(EngineHash name) const {
  if (entries_.empty()) return nullptr;
  const Entry& entry = entries_[PlaceOf(name)];
  return entry.used ? &entry : nullptr;
}

template <typename Entry>
Entry* EntryTable<Entry>::Find(EngineHash name) {
  if (entries_.empty()) return nullptr;
  Entry& entry = entries_[PlaceOf(name)];
  return entry.used ? &entry : nullptr;
}

template <typename Entry>
Entry* EntryTable<Entry>::Add(EngineHash name, RecentNames& recent) {
  if (Entry* const found = Find(name)) return found;
  if (size_ >= entries_max_ && !ForgetOne(recent)) return nullptr;
  if ((size_ + 1) * 4 > entries_.size() * 3) Grow();
  Entry& entry = entries_[PlaceOf(name)];
  entry = Entry{};
  entry.name = name;
  entry.used = true;
  ++size_;
  return &entry;
}

template <typename Entry>
void EntryTable<Entry>::Erase(Entry* entry) {
  const std::size_t mask = entries_.size() - 1;
  std::size_t hole = static_cast<std::size_t>(entry - entries_.data());
  // What could not have its own place because of this one moves up, so that no search ends here.
  for (std::size_t at = (hole + 1) & mask; entries_[at].used; at = (at + 1) & mask) {
    const std::size_t home = HomeOf(entries_[at].name);
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    entries_[hole] = entries_[at];
    hole = at;
  }
  entries_[hole] = Entry{};
  --size_;
}

template <typename Entry>
void EntryTable<Entry>::LetGo(EngineHash name, RecentNames& recent) {
  const auto forgotten = recent.Push(name);
  if (!forgotten) return;
  Entry* const entry = Find(*forgotten);
  if (entry != nullptr && !entry->held()) Erase(entry);
}

template <typename Entry>
bool EntryTable<Entry>::ForgetOne(RecentNames& recent) {
  while (const auto oldest = recent.Pop()) {
    Entry* const entry = Find(*oldest);
    if (entry == nullptr || entry->held()) continue;
    Erase(entry);
    return true;
  }
  return false;
}

template <typename Entry>
void EntryTable<Entry>::Clear() {
  std::fill(entries_.begin(), entries_.end(), Entry{});
  size_ = 0;
}

template <typename Entry>
void EntryTable<Entry>::Grow() {
  constexpr std::size_t kFirst = 1'024;
  std::vector<Entry> old(std::max(kFirst, entries_.size() * 2));
  old.swap(entries_);
  shift_ = 64 - static_cast<unsigned>(std::countr_zero(entries_.size()));
  for (const Entry& entry : old) {
    if (entry.used) entries_[PlaceOf(entry.name)] = entry;
  }
}

template class EntryTable<BlockEntry>;
template class EntryTable<NameEntry>;
template class EntryTable<MeaningEntry>;

}  // namespace kvr::publish
