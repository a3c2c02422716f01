#include <algorithm>

#include "index/run_arena.h"

namespace kvr::index {

void RunArena::NoteClaim(RunDraft& draft, std::uint32_t slot, Stretch blocks, Stretch run,
                         Claim claim) {
  PlaneDraft& eligible = draft.planes[kEligiblePlane];
  if (claim == Claim::kNothing) return;
  if (claim == Claim::kIneligible) {
    if (!eligible.view().empty()) eligible.Remove(slot, blocks, run);
    return;
  }
  if (claim == Claim::kEligibleAnyway) {
    eligible.Add(slot, blocks, run);
    return;
  }
  std::uint32_t held = 0;
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    const PlaneView view = draft.planes[tier].view();
    if (!view.empty()) held += view.Count(slot, blocks);
  }
  if (held == 0) {  // nearly always
    eligible.Add(slot, blocks, run);
    return;
  }
  if (eligible.view().Count(slot, blocks) == blocks.size()) return;
  // Those that no tier has; of the others it was said before.
  for (std::uint32_t at = blocks.begin; at < blocks.end;) {
    std::uint32_t end = blocks.end;
    std::uint32_t held_end = at;
    for (std::size_t tier = 0; tier < kTierCount; ++tier) {
      const PlaneView view = draft.planes[tier].view();
      held_end = std::max(held_end, view.Around(slot, at, run).end);
      for (const Partial& part : view.PartsOf(slot)) {
        if (part.held.begin > at) end = std::min(end, part.held.begin);
      }
    }
    if (held_end == at) {
      eligible.Add(slot, {at, end}, run);
      held_end = end;
    }
    at = held_end;
  }
}

// A block that waits may be held, too, behind one that is held no more.
void RunArena::AgreeWithHeld(const RankBlocks& rank, PendingBlock& waiting) {
  const auto held = Find(rank, waiting.name, true);
  if (!held || runs_.LocalAt(*held) != waiting.local) return;
  const Stretch run = runs_.BlocksOf(held->run);
  if (!runs_.View(held->run, kEligiblePlane).Has(rank.slot, held->depth, run)) {
    waiting.eligible = false;
  } else if (!waiting.eligible) {
    runs_.Edit(held->run).planes[kEligiblePlane].Remove(rank.slot, {held->depth, held->depth + 1},
                                                        run);
  }
}

}  // namespace kvr::index
