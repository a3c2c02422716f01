#include "service/recovery/recovered_rank.h"

namespace kvr::service {

std::size_t BlocksOf(const RecoveredRank& recovered) {
  std::size_t blocks = recovered.held.blocks.size();
  for (const index::SideGroupCopy& group : recovered.sides)
    blocks += group.blocks.size();
  return blocks;
}

void ApplyRecovered(const RecoveredRank& recovered, Rank rank, index::PartitionIndex& partition,
                    RankSlot slot) {
  index::ApplyCopy(recovered.held, rank, *partition.index, slot);
  if (recovered.sides.empty()) return;
  partition.hybrid->FindOrAdd(rank, *partition.index, partition.block_size)
      ->Restore(recovered.sides);
}

}  // namespace kvr::service
