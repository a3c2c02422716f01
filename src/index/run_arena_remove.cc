#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "base/check.h"
#include "index/run_arena.h"

namespace kvr::index {

// The blocks of one Removed event. Neighbours in a run, which engines drop together, are looked up
// once and dropped at once.
class RunArena::Removal {
 public:
  // Removes what the event names.
  Removal(RunArena& arena, RankBlocks& rank, const PlacementEvent& event) KVR_REQUIRES(arena.mutex_)
      : arena_(arena), rank_(rank), tier_(event.tier) {
    for (const EngineHash name : event.removed)
      all_known_ = Take(name) && all_known_;
    Flush();
  }

  [[nodiscard]] bool all_known() const { return all_known_; }

 private:
  // Whether the rank holds a block of this name in the tier, or did when the event began.
  bool Take(EngineHash name) KVR_REQUIRES(arena_.mutex_) {
    bool known =
        rank_.pending.size() > 0 &&
        rank_.pending.Remove(name, static_cast<std::uint8_t>(1u << static_cast<unsigned>(tier_)));
    if (run_ != kRootRun && TakeNeighbour(name)) return true;
    Flush();
    if (const PrivateNameId newest = rank_.names.empty() ? 0 : rank_.names.First(name)) {
      for (PrivateNameId id = newest; id != 0; id = rank_.names.Next(id)) {
        const BlockPlace place{rank_.names[id].run, rank_.names[id].depth};
        if (Begin(place)) return true;
        known = known || WasDropped(place);
      }
    } else if (const auto place = arena_.FindCommon(rank_, name)) {
      if (Begin(*place)) return true;
      known = known || WasDropped(*place);
    }
    return known;
  }

  void Flush() KVR_REQUIRES(arena_.mutex_) {
    if (run_ == kRootRun) return;
    arena_.Drop(rank_, tier_, {run_, taken_, tail_first_});
    dropped_.push_back({run_, taken_});
    run_ = kRootRun;
  }

  bool TakeNeighbour(EngineHash name) KVR_REQUIRES(arena_.mutex_) {
    if (has_aliases_) return false;
    const bool single = taken_.size() == 1;
    if ((single || tail_first_) && taken_.begin > held_.begin && NameAt(taken_.begin - 1) == name) {
      --taken_.begin;
      tail_first_ = true;
      return true;
    }
    if ((single || !tail_first_) && taken_.end < held_.end && NameAt(taken_.end) == name) {
      ++taken_.end;
      tail_first_ = false;
      return true;
    }
    return false;
  }

  // What most call a block of `held_`. Runs change their shape only after the event.
  [[nodiscard]] EngineHash NameAt(std::uint32_t depth) const {
    return EngineHash{names_[depth - held_.begin]};
  }

  bool Begin(BlockPlace place) KVR_REQUIRES(arena_.mutex_) {
    held_ = arena_.runs_.View(place.run, static_cast<std::size_t>(tier_))
                .Around(rank_.slot, place.depth, arena_.runs_.BlocksOf(place.run));
    if (held_.size() == 0) return false;
    run_ = place.run;
    taken_ = {place.depth, place.depth + 1};
    tail_first_ = false;
    names_ = arena_.runs_.CommonNames(run_, held_).data();
    has_aliases_ = arena_.runs_.AliasesOf(run_, rank_.slot) != nullptr;
    return true;
  }

  // Whether this event dropped the block: to name it twice is no error.
  bool WasDropped(BlockPlace place) {
    for (const auto& [run, blocks] : dropped_)
      dropped_in_order_.emplace(std::pair(run, blocks.begin), blocks.end);
    dropped_.clear();
    const auto after = dropped_in_order_.upper_bound({place.run, place.depth});
    if (after == dropped_in_order_.begin()) return false;
    const auto& [begin, end] = *std::prev(after);
    return begin.first == place.run && place.depth < end;
  }

  RunArena& arena_;
  RankBlocks& rank_;
  const Tier tier_;
  bool all_known_ = true;
  RunId run_ = kRootRun;  // kRootRun: nothing taken
  Stretch held_;
  const std::uint64_t* names_ = nullptr;  // of it
  Stretch taken_;
  bool tail_first_ = false;
  bool has_aliases_ = false;
  std::vector<std::pair<RunId, Stretch>> dropped_;
  std::map<std::pair<RunId, std::uint32_t>, std::uint32_t> dropped_in_order_;  // (run, begin) → end
};

ApplyResult RunArena::Remove(RankBlocks& rank, const PlacementEvent& event) {
  const Removal removal(*this, rank, event);
  return {removal.all_known() ? ApplyStatus::kOk : ApplyStatus::kBlockNotFound};
}

void RunArena::Drop(RankBlocks& rank, Tier tier, const RememberedBlocks::Dropped& dropped) {
  const Stretch run = runs_.BlocksOf(dropped.run);
  RunDraft& draft = runs_.Edit(dropped.run);
  const std::uint32_t removed =
      draft.planes[static_cast<std::size_t>(tier)].Remove(rank.slot, dropped.blocks, run);
  KVR_DCHECK(removed == dropped.blocks.size());
  rank.held[static_cast<std::size_t>(tier)] -= removed;
  rank.memberships -= removed;
  memberships_ -= removed;

  bool elsewhere = false;
  for (std::size_t other = 0; other < kTierCount; ++other)
    elsewhere |= draft.planes[other].view().Count(rank.slot, dropped.blocks) > 0;
  if (!elsewhere) {
    Remember(rank, dropped);
    return;
  }
  for (std::uint32_t i = 0; i < dropped.blocks.size(); ++i) {
    const std::uint32_t depth =
        dropped.tail_first ? dropped.blocks.end - 1 - i : dropped.blocks.begin + i;
    if (!InTier(rank.slot, {dropped.run, depth}))
      Remember(rank, {dropped.run, {depth, depth + 1}, false});
  }
}

void RunArena::Remember(RankBlocks& rank, const RememberedBlocks::Dropped& dropped) {
  runs_.Edit(dropped.run)
      .planes[kRememberedPlane]
      .Add(rank.slot, dropped.blocks, runs_.BlocksOf(dropped.run));
  rank.remembered.Add(dropped);
  rank.unchecked += dropped.blocks.size();
  if (rank.remembered.size() > options_.remembered_names_max)
    ForgetOldest(rank, rank.remembered.size() - options_.remembered_names_max);
}

void RunArena::ForgetOldest(RankBlocks& rank, std::size_t count) {
  while (count > 0) {
    const RememberedBlocks::Dropped oldest =
        rank.remembered.TakeOldest(static_cast<std::uint32_t>(count));
    count -= oldest.blocks.size();
    runs_.Edit(oldest.run)
        .planes[kRememberedPlane]
        .Remove(rank.slot, oldest.blocks, runs_.BlocksOf(oldest.run));
    Forget(rank, oldest.run, oldest.blocks);
    Leave(rank, oldest.run);
  }
}

// A name keeps its block, and this all blocks before it: of a long chain that was removed from its
// head on, thousands of them.
void RunArena::KeepIdle(RankBlocks& rank) {
  constexpr std::uint64_t kIdleForName = 16;
  constexpr std::uint32_t kNamesMin = 4'096;
  const std::uint64_t names_max = std::max(options_.remembered_names_max, kNamesMin);
  const std::uint64_t idle_max = kIdleForName * names_max;
  if (rank.unchecked == 0 || runs_.blocks() - runs_.held_blocks() <= idle_max) return;
  if (rank.unchecked < names_max / 4 && rank.memberships > 0) return;
  rank.unchecked = 0;
  while (rank.remembered.size() > 0 && IdleOf(rank) > idle_max) {
    ForgetOldest(rank, (rank.remembered.size() + 1) / 2);
    runs_.Commit();
  }
}

std::uint64_t RunArena::IdleOf(const RankBlocks& rank) const {
  std::uint64_t idle = 0;
  std::unordered_set<RunId> seen;
  for (const RememberedBlocks::Dropped& dropped : rank.remembered.list()) {
    for (RunId run = dropped.run; run != kRootRun && !runs_.IsHeld(run);
         run = runs_.ParentOf(run)) {
      if (!seen.insert(run).second) break;
      idle += runs_.BlocksOf(run).size();
    }
  }
  return idle;
}

// Takes the run from the rank's list if nothing of the rank is in it any more.
void RunArena::Leave(RankBlocks& rank, RunId run) {
  for (std::size_t plane = 0; plane < kPlaneCount; ++plane) {
    if (plane != kEligiblePlane && runs_.View(run, plane).HasAny(rank.slot)) return;
  }
  rank.runs.Erase(run);
}

}  // namespace kvr::index
