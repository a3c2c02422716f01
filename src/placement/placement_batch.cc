#include "placement/placement_batch.h"

#include <algorithm>

namespace kvr::placement {

DroppedEvent Undecodable(const wire::BadEvent& bad) {
  const bool unknown = bad.error.code == wire::DecodeErrc::kUnknownEvent;
  return {bad.index, unknown ? DropReason::kUnknownEvent : DropReason::kDecodeError, bad.error, 0};
}

void PlacementBatch::SortDropped() {
  std::sort(dropped.begin(), dropped.end(),
            [](const DroppedEvent& a, const DroppedEvent& b) { return a.index < b.index; });
}

void PlacementBatch::SetEventSpans(std::span<const std::size_t> ends) {
  std::size_t block = 0;
  std::size_t hash = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    PlacementEvent& event = events[i];
    if (event.kind == PlacementKind::kStored) {
      event.blocks = std::span(blocks).subspan(block, ends[i] - block);
      block = ends[i];
    } else if (event.kind == PlacementKind::kRemoved) {
      event.removed = std::span(removed).subspan(hash, ends[i] - hash);
      hash = ends[i];
    }
  }
}

}  // namespace kvr::placement
