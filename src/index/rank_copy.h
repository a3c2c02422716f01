// What an index knows of one rank, aside from the index.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "model/ids.h"
#include "model/placement_event.h"
#include "model/tier.h"

namespace kvr::index {

class PrefixIndex;

// The blocks of one rank, under the rank's own names, parents first. 16 bytes a block, and some for
// each run. Stores in this order find their parents by name, also where several blocks have one:
// then a block may be there more than once, see TellSharedNames.
struct RankCopy {
  // Consecutive blocks of one chain, alike in everything but their hashes.
  struct Run {
    std::optional<EngineHash> parent;  // none: the chain starts at the root
    std::size_t begin = 0;             // in `blocks`
    std::size_t end = 0;
    unsigned tiers = 0;  // a bit for each tier that holds them, of CopyRank at least one
    bool eligible = false;
    // The device tier holds them and all before them, and stores of them may come before all
    // others.
    bool device_way = false;
  };

  std::vector<Run> runs;
  std::vector<PlacedBlock> blocks;
};

constexpr unsigned TierBit(Tier tier) {
  return 1u << static_cast<unsigned>(tier);
}

// Stored events that say what a copy does, one after the other.
class CopyStores {
 public:
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  // Of at most `blocks_max` blocks each. `copy` must outlive this, and the events.
  CopyStores(const RankCopy& copy, Rank rank, std::size_t blocks_max = kNoLimit)
      : copy_(copy), rank_(rank), blocks_max_(blocks_max) {}

  // False when there are no more.
  bool Next(PlacementEvent& event);

 private:
  // Whether there is a store in `tier_`, in this turn.
  [[nodiscard]] bool IsNow(const RankCopy::Run& run) const;

  const RankCopy& copy_;
  const Rank rank_;
  const std::size_t blocks_max_;
  bool rest_ = false;  // in the second turn; the first is for device ways
  std::size_t run_ = 0;
  std::size_t done_ = 0;  // blocks of the run, in this turn
  std::size_t tier_ = 0;
};

// Calls `use` with Stored events that say the same, of at most 1,024 blocks each.
void EachStore(const RankCopy& copy, Rank rank,
               const std::function<void(const PlacementEvent&)>& use);

// Stores the blocks in `index`, as if events had announced them. `slot` is the rank's. Queries and
// other updates get their turn in between.
void ApplyCopy(const RankCopy& copy, Rank rank, PrefixIndex& index, RankSlot slot);

}  // namespace kvr::index
