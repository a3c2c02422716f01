#include "index/engine_table.h"

namespace kvr::index {

bool EngineTable::Put(Segment& segment, Key key, Place place) {
  std::uint32_t at = Home(segment, key);
  std::uint64_t mark = MarkOf(key);
  for (std::uint64_t distance = 1; distance <= kDistanceMax; ++distance, ++mark) {
    Bucket& bucket = segment.buckets.get()[at];
    if (const WordGroup::Set empty = bucket.Empty(); !empty.empty()) {
      bucket.entries[empty.first()] = Entry(place) | mark;
      return true;
    }
    at = Next(segment, at);
  }
  return false;
}

std::uint64_t* EngineTable::EntryOf(const Segment& segment, Key key, Place place) {
  if (segment.size == 0) return nullptr;
  std::uint32_t at = Home(segment, key);
  std::uint64_t mark = MarkOf(key);
  for (std::uint64_t distance = 1; distance <= kDistanceMax; ++distance, ++mark) {
    Bucket& bucket = segment.buckets.get()[at];
    for (WordGroup::Set same = bucket.Marked(mark); !same.empty(); same.DropFirst()) {
      std::uint64_t& entry = bucket.entries[same.first()];
      if (PlaceOf(entry) == place) return &entry;
    }
    if (!bucket.Empty().empty()) return nullptr;
    at = Next(segment, at);
  }
  return nullptr;
}

void EngineTable::FillGap(Segment& segment, std::uint64_t* gap) {
  auto at = static_cast<std::uint32_t>((gap - segment.buckets[0].entries.data()) / kWords);
  bool was_full = segment.buckets[at].Empty().empty();
  *gap = 0;
  for (std::uint32_t next = at, away = 1; was_full && away < kDistanceMax; ++away) {
    next = Next(segment, next);
    Bucket& bucket = segment.buckets.get()[next];
    const bool is_full = bucket.Empty().empty();
    for (std::uint64_t& entry : bucket.entries) {
      if (DistanceOf(entry) <= away) continue;
      *gap = entry - away;
      entry = 0;
      gap = &entry;
      at = next;
      away = 0;
      break;
    }
    was_full = is_full;
  }
}

bool EngineTable::Move(Key key, Place from, Place to) {
  std::uint64_t* const entry = EntryOf(segments_[SegmentOf(key)], key, from);
  if (entry == nullptr) return false;
  *entry = Entry(to) | (*entry & ((std::uint64_t{1} << kMarkBits) - 1));
  return true;
}

}  // namespace kvr::index
