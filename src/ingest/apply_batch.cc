#include "ingest/apply_batch.h"

#include <cstddef>
#include <memory>

namespace kvr::ingest {
namespace {

void ApplySide(index::SideGroups& sides, const placement::SideEvent& event) {
  sides.Declare(event.group);
  if (event.removed) {
    sides.Remove(event.group.group, event.tier, event.copies);
  } else {
    sides.Store(event.group.group, event.tier, event.copies);
  }
}

}  // namespace

void ApplyBatch(index::PartitionIndex& partition, Rank rank, const placement::PlacementBatch& batch,
                const std::function<void(const PlacementEvent&)>& apply) {
  std::shared_ptr<index::SideGroups> sides;
  if (!batch.side.empty()) {
    sides = partition.hybrid->FindOrAdd(rank, *partition.index, partition.block_size);
  } else {
    sides = partition.hybrid->Find(rank);
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < batch.events.size(); ++i) {
    for (; next < batch.side.size() && batch.side[next].before <= i; ++next)
      ApplySide(*sides, batch.side[next]);
    const PlacementEvent& event = batch.events[i];
    apply(event);
    if (sides && event.rank == rank) sides->ApplyMain(event);
  }
  for (; next < batch.side.size(); ++next)
    ApplySide(*sides, batch.side[next]);
}

}  // namespace kvr::ingest
