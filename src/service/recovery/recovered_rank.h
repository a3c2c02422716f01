// What a dump of a peer or of this router's past says about one rank, one partition: blocks that
// wait to be believed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "index/index_set.h"
#include "index/rank_copy.h"
#include "index/side_groups.h"
#include "model/ids.h"

namespace kvr::service {

struct RecoveredRank {
  // The last message of the rank's stream that had been applied, when all before it were applied
  // too: only then may the stream go on from there.
  std::optional<std::uint64_t> watermark;
  std::optional<std::uint64_t> digest;  // of that message, see StreamPosition
  index::RankCopy held;
  std::vector<index::SideGroupCopy> sides;  // of a hybrid model; what it needs beside `held`
};

struct RecoveredPartition {
  Partition partition;
  std::uint32_t block_size = 0;
  std::map<Rank, RecoveredRank> ranks;
  std::size_t blocks = 0;  // of all ranks, those of side groups included
};

// Blocks that wait in it, those of side groups included.
[[nodiscard]] std::size_t BlocksOf(const RecoveredRank& recovered);

// Enters the rank's blocks, as if its stream had announced them. `slot` is the rank's in the index.
void ApplyRecovered(const RecoveredRank& recovered, Rank rank, index::PartitionIndex& partition,
                    RankSlot slot);

}  // namespace kvr::service
