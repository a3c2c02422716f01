// What an index knows of one rank, aside from the index.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "model/ids.h"
#include "model/placement_event.h"
#include "model/tier.h"

namespace kvr::index {

class PrefixIndex;

// The blocks of one rank, under the rank's own names, parents first. 16 bytes a block, and some for
// each run.
struct RankCopy {
  // Consecutive blocks of one chain, alike in everything but their hashes.
  struct Run {
    std::optional<EngineHash> parent;  // none: the chain starts at the root
    std::size_t begin = 0;             // in `blocks`
    std::size_t end = 0;
    unsigned tiers = 0;  // a bit for each tier that holds them, of CopyRank at least one
    bool eligible = false;
  };

  std::vector<Run> runs;
  std::vector<PlacedBlock> blocks;
};

constexpr unsigned TierBit(Tier tier) {
  return 1u << static_cast<unsigned>(tier);
}

// Calls `use` with Stored events that say the same, of at most 1,024 blocks each.
void EachStore(const RankCopy& copy, Rank rank,
               const std::function<void(const PlacementEvent&)>& use);

// Stores the blocks in `index`, as if events had announced them. `slot` is the rank's. Queries and
// other updates get their turn in between.
void ApplyCopy(const RankCopy& copy, Rank rank, PrefixIndex& index, RankSlot slot);

}  // namespace kvr::index
