#include "index/decision_entries.h"

#include <algorithm>
#include <utility>

#include "index/heap_bytes.h"

namespace kvr::index {

void DecisionEntries::Use(std::span<const SequenceHash> path, Nanos due, bool hold) {
  for (std::size_t depth = path.size(); depth-- > 0;) {
    const std::uint32_t at = FindOrAdd(path[depth]);
    Entry& entry = entries_[at];
    if (entry.users == 0) Unlink(at);
    entry.due = std::max(entry.due, due);
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
  while (!due_.empty() && due_.begin()->first <= now)
    Take(due_.begin()->second, out);
  Shrink();
}

void DecisionEntries::TakeOldest(std::size_t count, std::vector<EngineHash>& out) {
  for (; count > 0 && first_ != kNone; --count)
    Take(first_, out);
  Shrink();
}

std::optional<Nanos> DecisionEntries::next_due() const {
  return due_.empty() ? std::nullopt : std::optional(due_.begin()->first);
}

std::size_t DecisionEntries::bytes() const {
  constexpr std::size_t kNodeBytes = 3 * sizeof(void*);     // next, key, place
  constexpr std::size_t kDueNodeBytes = 6 * sizeof(void*);  // colour, three links, time, first
  return HeapBytes(entries_.capacity() * sizeof(Entry)) +
         HeapBytes(free_.capacity() * sizeof(std::uint32_t)) +
         places_.size() * HeapBytes(kNodeBytes) +
         HeapBytes(places_.bucket_count() * sizeof(void*)) + due_.size() * HeapBytes(kDueNodeBytes);
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
  Entry& entry = entries_[place->second];
  entry = {};
  entry.name = name;
  return place->second;
}

void DecisionEntries::Append(std::uint32_t at) {
  Entry& entry = entries_[at];
  entry.by_use = {last_, kNone};
  (last_ == kNone ? first_ : entries_[last_].by_use.after) = at;
  last_ = at;
  const auto [due, alone] = due_.try_emplace(entry.due, at);
  if (alone) return;
  entry.by_due.after = due->second;
  entries_[due->second].by_due.before = at;
  due->second = at;
}

// One that is not in the orders stays out of them.
void DecisionEntries::Unlink(std::uint32_t at) {
  Entry& entry = entries_[at];
  const Links used = entry.by_use;
  if (first_ != at && used.before == kNone) return;
  (first_ == at ? first_ : entries_[used.before].by_use.after) = used.after;
  (last_ == at ? last_ : entries_[used.after].by_use.before) = used.before;
  const Links due = entry.by_due;
  if (due.after != kNone) entries_[due.after].by_due.before = due.before;
  if (due.before != kNone) {
    entries_[due.before].by_due.after = due.after;
  } else if (due.after != kNone) {
    due_.find(entry.due)->second = due.after;
  } else {
    due_.erase(entry.due);
  }
  entry.by_use = entry.by_due = {};
}

void DecisionEntries::Take(std::uint32_t at, std::vector<EngineHash>& out) {
  const SequenceHash name = entries_[at].name;
  out.push_back(EngineHash{Raw(name)});
  Unlink(at);
  places_.erase(Raw(name));
  free_.push_back(at);
}

void DecisionEntries::Shrink() {
  constexpr std::size_t kSmall = 1'024;
  if (entries_.size() <= kSmall || places_.size() > entries_.size() / 4) return;
  std::vector<std::uint32_t> moved(entries_.size(), kNone);
  std::vector<Entry> entries;
  entries.reserve(places_.size());
  for (auto& [name, at] : places_) {
    moved[at] = static_cast<std::uint32_t>(entries.size());
    entries.push_back(entries_[at]);
    at = moved[at];
  }
  const auto move = [&moved](std::uint32_t& at) {
    if (at != kNone) at = moved[at];
  };
  for (Entry& entry : entries) {
    for (Links* const links : {&entry.by_use, &entry.by_due}) {
      move(links->before);
      move(links->after);
    }
  }
  move(first_);
  move(last_);
  for (auto& [due, first] : due_)
    move(first);
  entries_ = std::move(entries);
  std::vector<std::uint32_t>().swap(free_);
  places_.rehash(0);
}

}  // namespace kvr::index
