// One normalised batch of a rank into what a partition knows of it.
#pragma once

#include <functional>

#include "index/index_set.h"
#include "model/ids.h"
#include "model/placement_event.h"
#include "placement/placement_batch.h"

namespace kvr::ingest {

// Applies the batch in the engine's order: its events with `apply`, which puts them into indexes,
// and those of side groups to the SideGroups of `rank`, which follow its main group too. A rank
// gets these with its first event of a side group; one that has none costs nothing more.
void ApplyBatch(index::PartitionIndex& partition, Rank rank, const placement::PlacementBatch& batch,
                const std::function<void(const PlacementEvent&)>& apply);

}  // namespace kvr::ingest
