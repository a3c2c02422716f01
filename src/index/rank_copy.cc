#include "index/rank_copy.h"

#include <algorithm>
#include <span>

#include "index/prefix_index.h"

namespace kvr::index {
namespace {

constexpr std::size_t kEventBlocks = 1'024;

}  // namespace

void EachStore(const RankCopy& copy, Rank rank,
               const std::function<void(const PlacementEvent&)>& use) {
  const std::span<const PlacedBlock> blocks(copy.blocks);
  for (const RankCopy::Run& run : copy.runs) {
    PlacementEvent event;
    event.rank = rank;
    event.parent = run.parent;
    event.eligible = run.eligible;
    for (std::size_t at = run.begin; at < run.end; at += kEventBlocks) {
      event.blocks = blocks.subspan(at, std::min(kEventBlocks, run.end - at));
      for (std::size_t tier = 0; tier < kTierCount; ++tier) {
        event.tier = static_cast<Tier>(tier);
        if ((run.tiers & TierBit(event.tier)) != 0) use(event);
      }
      event.parent = event.blocks.back().engine;
    }
  }
}

void ApplyCopy(const RankCopy& copy, Rank rank, PrefixIndex& index, RankSlot slot) {
  EachStore(copy, rank, [&](const PlacementEvent& event) { index.Apply(slot, event); });
}

}  // namespace kvr::index
