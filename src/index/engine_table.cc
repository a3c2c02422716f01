#include "index/engine_table.h"

#include <utility>

namespace kvr::index {

std::uint64_t EngineTable::Put(Segment& segment, std::uint32_t home, std::uint64_t entry) {
  std::uint32_t i = home;
  for (std::uint64_t distance = 1; distance <= kDistanceMax; ++distance, i = Next(segment, i)) {
    std::uint64_t& here = segment.entries[i];
    if (here == 0) {
      here = entry | distance;
      return 0;
    }
    if (DistanceOf(here) >= distance) continue;
    std::swap(here, entry);
    here |= distance;
    distance = DistanceOf(entry);
    entry &= ~kDistanceMax;
  }
  return entry;
}

void EngineTable::CloseGap(Segment& segment, std::uint32_t i) {
  for (std::uint32_t next = Next(segment, i);; i = next, next = Next(segment, next)) {
    const std::uint64_t entry = segment.entries[next];
    if (DistanceOf(entry) <= 1) break;  // empty, or at home
    segment.entries[i] = entry - 1;
  }
  segment.entries[i] = 0;
}

std::uint32_t EngineTable::IndexOf(const Segment& segment, std::uint64_t hash, Place place) {
  if (segment.size == 0) return 0;
  std::uint32_t i = Home(segment, hash);
  for (std::uint64_t distance = 1;; ++distance, i = Next(segment, i)) {
    const std::uint64_t entry = segment.entries[i];
    if (DistanceOf(entry) < distance) return segment.size;
    if (PlaceOf(entry) == place && DistanceOf(entry) == distance) return i;
  }
}

bool EngineTable::Move(EngineHash name, Place from, Place to) {
  const std::uint64_t hash = Hash(name);
  Segment& segment = segments_[hash >> (64 - kSegmentBits)];
  const std::uint32_t i = IndexOf(segment, hash, from);
  if (i == segment.size) return false;
  segment.entries[i] = Entry(to) | (segment.entries[i] & kTagAndDistance);
  return true;
}

}  // namespace kvr::index
