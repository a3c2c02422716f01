// What a peer's dump says about one rank, one partition: blocks that wait to be believed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "index/prefix_index.h"
#include "model/ids.h"
#include "model/placement_event.h"
#include "model/tier.h"

namespace kvr::service {

struct RecoveredRank {
  // Consecutive blocks of one chain, in one tier.
  struct Run {
    Tier tier = Tier::kDevice;
    std::optional<EngineHash> parent;
    std::size_t begin = 0;  // in `blocks`
    std::size_t end = 0;
  };

  // The last message of the rank's stream that the peer had applied, when all before it were
  // applied too: only then may the stream go on from there.
  std::optional<std::uint64_t> watermark;
  std::vector<Run> runs;  // in the order they are to be applied
  std::vector<PlacedBlock> blocks;
};

struct RecoveredPartition {
  Partition partition;
  std::uint32_t block_size = 0;
  std::map<Rank, RecoveredRank> ranks;
  std::size_t blocks = 0;  // of all ranks
};

// Stores the rank's blocks in `index`, as if its stream had announced them. `slot` is the rank's.
void ApplyRecovered(const RecoveredRank& recovered, Rank rank, index::PrefixIndex& index,
                    RankSlot slot);

}  // namespace kvr::service
