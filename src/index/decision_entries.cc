#include "index/decision_entries.h"

#include <algorithm>

#include "index/heap_bytes.h"

namespace kvr::index {

void DecisionEntries::Use(std::span<const SequenceHash> path, Nanos due, bool hold) {
  for (std::size_t depth = path.size(); depth-- > 0;) {
    const std::uint32_t at = FindOrAdd(path[depth]);
    Entry& entry = entries_[at];
    entry.due = std::max(entry.due, due);
    if (entry.users == 0) Unlink(at);
    if (hold) ++entry.users;
    if (entry.users == 0) Append(at);
  }
}

void DecisionEntries::Release(std::span<const SequenceHash> path) {
  for (std::size_t depth = path.size(); depth-- > 0;) {
    const auto place = places_.find(Raw(path[depth]));
    if (place == places_.end()) continue;
    Entry& entry = entries_[place->second];
    if (entry.users > 0 && --entry.users == 0) Append(place->second);
  }
}

void DecisionEntries::TakeDue(Nanos now, std::vector<EngineHash>& out) {
  while (first_ != kNone && entries_[first_].due <= now)
    TakeFirst(out);
}

void DecisionEntries::TakeOldest(std::size_t count, std::vector<EngineHash>& out) {
  for (; count > 0 && first_ != kNone; --count)
    TakeFirst(out);
}

std::optional<Nanos> DecisionEntries::next_due() const {
  return first_ == kNone ? std::nullopt : std::optional(entries_[first_].due);
}

std::size_t DecisionEntries::bytes() const {
  constexpr std::size_t kNodeBytes = 3 * sizeof(void*);  // next, key, place
  return HeapBytes(entries_.capacity() * sizeof(Entry)) +
         HeapBytes(free_.capacity() * sizeof(std::uint32_t)) +
         places_.size() * HeapBytes(kNodeBytes) + HeapBytes(places_.bucket_count() * sizeof(void*));
}

std::uint32_t DecisionEntries::FindOrAdd(SequenceHash name) {
  const auto [place, added] = places_.try_emplace(Raw(name), kNone);
  if (!added) return place->second;
  if (free_.empty()) {
    place->second = static_cast<std::uint32_t>(entries_.size());
    entries_.emplace_back();
  } else {
    place->second = free_.back();
    free_.pop_back();
  }
  entries_[place->second] = {.name = name};
  return place->second;
}

void DecisionEntries::Append(std::uint32_t at) {
  Entry& entry = entries_[at];
  entry.before = last_;
  entry.after = kNone;
  (last_ == kNone ? first_ : entries_[last_].after) = at;
  last_ = at;
}

// One that is not in the order stays out of it.
void DecisionEntries::Unlink(std::uint32_t at) {
  Entry& entry = entries_[at];
  if (first_ != at && entry.before == kNone) return;
  (first_ == at ? first_ : entries_[entry.before].after) = entry.after;
  (last_ == at ? last_ : entries_[entry.after].before) = entry.before;
  entry.before = entry.after = kNone;
}

void DecisionEntries::TakeFirst(std::vector<EngineHash>& out) {
  const std::uint32_t at = first_;
  const SequenceHash name = entries_[at].name;
  out.push_back(EngineHash{Raw(name)});
  Unlink(at);
  places_.erase(Raw(name));
  free_.push_back(at);
}

}  // namespace kvr::index
