#include "index/rank_copy.h"

#include <algorithm>
#include <span>
#include <utility>

#include "index/prefix_index.h"

namespace kvr::index {
namespace {

constexpr std::size_t kEventBlocks = 1'024;

}  // namespace

bool CopyStores::IsNow(const RankCopy::Run& run) const {
  if (((run.tiers >> tier_) & 1u) == 0) return false;
  const bool first = run.device_way && tier_ == static_cast<std::size_t>(Tier::kDevice);
  return first != rest_;
}

bool CopyStores::Next(PlacementEvent& event) {
  while (true) {
    if (run_ == copy_.runs.size()) {
      if (std::exchange(rest_, true)) return false;
      run_ = 0;
      continue;
    }
    const RankCopy::Run& run = copy_.runs[run_];
    const std::size_t count = std::min(run.end - run.begin - done_, blocks_max_);
    for (; tier_ < kTierCount; ++tier_) {
      if (!IsNow(run)) continue;
      event = {};
      event.rank = rank_;
      event.tier = static_cast<Tier>(tier_++);
      event.parent = run.parent;
      if (done_ > 0) event.parent = copy_.blocks[run.begin + done_ - 1].engine;
      event.blocks = std::span(copy_.blocks).subspan(run.begin + done_, count);
      event.eligible = run.eligible;
      return true;
    }
    tier_ = 0;
    done_ += count;
    if (run.begin + done_ < run.end) continue;
    done_ = 0;
    ++run_;
  }
}

void EachStore(const RankCopy& copy, Rank rank,
               const std::function<void(const PlacementEvent&)>& use) {
  CopyStores stores(copy, rank, kEventBlocks);
  for (PlacementEvent event; stores.Next(event);)
    use(event);
}

void ApplyCopy(const RankCopy& copy, Rank rank, PrefixIndex& index, RankSlot slot) {
  EachStore(copy, rank, [&](const PlacementEvent& event) { index.Apply(slot, event); });
}

}  // namespace kvr::index
