#include <algorithm>
#include <array>

#include "index/run_arena.h"

namespace kvr::index {

bool RunArena::InTier(std::uint32_t slot, BlockPlace place) const {
  const Stretch run = runs_.BlocksOf(place.run);
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    if (runs_.View(place.run, tier).Has(slot, place.depth, run)) return true;
  }
  return false;
}

bool RunArena::Knows(std::uint32_t slot, BlockPlace place) const {
  return InTier(slot, place) ||
         runs_.View(place.run, kRememberedPlane).Has(slot, place.depth, runs_.BlocksOf(place.run));
}

std::optional<BlockPlace> RunArena::FindCommon(const RankBlocks& rank, EngineHash name) const {
  const auto place = runs_.FindCommon(name);
  if (!place || !Knows(rank.slot, *place) || runs_.AliasAt(*place, rank.slot)) return std::nullopt;
  return place;
}

std::optional<BlockPlace> RunArena::Find(const RankBlocks& rank, EngineHash name,
                                         bool held_only) const {
  const PrivateNameId newest = rank.names.empty() ? 0 : rank.names.First(name);
  if (newest == 0) {
    const auto place = FindCommon(rank, name);
    return place && (!held_only || InTier(rank.slot, *place)) ? place : std::nullopt;
  }
  for (PrivateNameId id = newest; id != 0; id = rank.names.Next(id)) {
    const BlockPlace place{rank.names[id].run, rank.names[id].depth};
    if (InTier(rank.slot, place)) return place;
  }
  if (held_only) return std::nullopt;
  return BlockPlace{rank.names[newest].run, rank.names[newest].depth};
}

void RunArena::SetName(RankBlocks& rank, BlockPlace place, EngineHash name) {
  const auto alias = runs_.AliasAt(place, rank.slot);
  const bool known = Knows(rank.slot, place);
  if (known && (alias ? *alias : runs_.CommonNameAt(place)) == name) {
    if (alias) rank.names.Touch(name, place.run, place.depth);
    return;
  }
  // Another block of the rank goes by this name: from here on their order counts.
  if (const auto other = FindCommon(rank, name)) {
    runs_.SetAlias(*other, rank.slot, name);
    rank.names.Add(name, other->run, other->depth);
  }
  const bool conflict = rank.names.First(name) != 0;
  if (conflict) ++name_conflicts_;
  if (known) ForgetNames(rank, place.run, {place.depth, place.depth + 1});
  if (!conflict && runs_.CommonNameAt(place) == name && runs_.ClaimCommon(place)) return;
  runs_.SetAlias(place, rank.slot, name);
  rank.names.Add(name, place.run, place.depth);
}

void RunArena::Forget(RankBlocks& rank, RunId run, Stretch blocks) {
  if (runs_.View(run, kEligiblePlane).Count(rank.slot, blocks) > 0)
    runs_.Edit(run).planes[kEligiblePlane].Remove(rank.slot, blocks, runs_.BlocksOf(run));
  ForgetNames(rank, run, blocks);
}

void RunArena::ForgetNames(RankBlocks& rank, RunId run, Stretch blocks) {
  for (std::uint32_t depth = blocks.begin; depth < blocks.end; ++depth) {
    const AliasColumn* const aliases = runs_.AliasesOf(run, rank.slot);
    if (aliases == nullptr) return;
    const auto name = aliases->At(depth);
    if (!name) continue;
    rank.names.Erase(*name, run, depth);
    runs_.ClearAlias({run, depth}, rank.slot);
  }
}

EngineHash RunArena::NameOf(std::uint32_t slot, BlockPlace place) const {
  const auto alias = runs_.AliasAt(place, slot);
  return alias ? *alias : runs_.CommonNameAt(place);
}

void RunArena::FindSlots(RunId run, std::vector<std::uint32_t>& slots) const {
  slots.clear();
  for (std::size_t plane = 0; plane < kPlaneCount; ++plane) {
    if (plane != kEligiblePlane) runs_.View(run, plane).AppendSlots(slots);
  }
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
}

void RunArena::OnMoved(RunId from, RunId to, Stretch blocks) {
  const Stretch source = runs_.BlocksOf(from);
  const std::array<Stretch, 2> others = {Stretch{source.begin, blocks.begin},
                                         Stretch{blocks.end, source.end}};
  FindSlots(from, moved_);
  for (const std::uint32_t slot : moved_) {
    RankBlocks& rank = *slots_[slot];
    std::uint32_t moved = 0;
    std::uint32_t left = 0;
    for (std::size_t plane = 0; plane < kPlaneCount; ++plane) {
      if (plane == kEligiblePlane) continue;
      const PlaneView view = runs_.View(from, plane);
      moved += view.Count(slot, blocks);
      left += view.Count(slot, others[0]) + view.Count(slot, others[1]);
    }
    if (moved > 0) rank.runs.Add(to);
    if (left == 0) rank.runs.Erase(from);
    if (runs_.View(from, kRememberedPlane).Count(slot, blocks) > 0)
      rank.remembered.Move(from, to, blocks);
    CountBytes(rank);
  }
  const AliasList* const aliases = runs_.AliasesOf(to);
  if (aliases == nullptr) return;
  for (const AliasColumn* column : aliases->columns) {
    RankBlocks& rank = *slots_[column->slot()];
    if (rank.sweeping) continue;
    for (std::uint32_t depth = blocks.begin; depth < blocks.end; ++depth) {
      if (const auto name = column->At(depth)) rank.names.Move(*name, from, to, depth);
    }
  }
}

}  // namespace kvr::index
