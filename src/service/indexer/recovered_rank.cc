#include "service/indexer/recovered_rank.h"

#include <algorithm>
#include <span>

namespace kvr::service {
namespace {

// Blocks are applied in parts of so many, so that queries get their turn in between.
constexpr std::size_t kPartBlocks = 1'024;

}  // namespace

void ApplyRecovered(const RecoveredRank& recovered, Rank rank, index::PrefixIndex& index,
                    RankSlot slot) {
  const std::span<const PlacedBlock> blocks(recovered.blocks);
  for (const RecoveredRank::Run& run : recovered.runs) {
    PlacementEvent event;
    event.tier = run.tier;
    event.rank = rank;
    event.parent = run.parent;
    for (std::size_t at = run.begin; at < run.end; at += kPartBlocks) {
      event.blocks = blocks.subspan(at, std::min(kPartBlocks, run.end - at));
      index.Apply(slot, event);
      event.parent = event.blocks.back().engine;
    }
  }
}

}  // namespace kvr::service
