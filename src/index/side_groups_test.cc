#include "index/side_groups.h"

#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "index/index_set.h"

namespace kvr::index {
namespace {

constexpr std::uint32_t kBlockSize = 4;
constexpr std::uint32_t kGroup = 1;

std::vector<SideCopy> Copies(const std::vector<std::uint64_t>& names) {
  std::vector<SideCopy> copies;
  for (const std::uint64_t name : names)
    copies.push_back({EngineHash{name}});
  return copies;
}

// Main blocks 1, 2, ... `depth`, each named by its place.
void StoreChain(SideGroups& sides, std::uint32_t depth) {
  std::vector<PlacedBlock> blocks;
  for (std::uint64_t i = 1; i <= depth; ++i)
    blocks.push_back({EngineHash{i}, BlockHash{i}});
  PlacementEvent event;
  event.blocks = blocks;
  sides.ApplyMain(event);
}

RankOverlap Overlap(std::uint32_t depth) {
  RankOverlap overlap;
  overlap.blocks[0] = depth;
  overlap.last = EngineHash{depth};
  return overlap;
}

std::uint32_t HitOf(const SideGroups& sides, std::uint32_t depth) {
  return sides.HitOf(Overlap(depth), depth);
}

TEST(SideGroups, WhatAGroupNeedsAtTheEndOfAPrefix) {
  const auto window = [](std::uint32_t tokens, std::uint32_t block_size = kBlockSize) {
    return SideGroup{kGroup, SideRule::kWindow, block_size, tokens};
  };
  const auto mamba = [](std::uint32_t block_size) {
    return SideGroup{kGroup, SideRule::kCheckpoint, block_size, 0};
  };
  const SideGroup every{kGroup, SideRule::kEvery, kBlockSize, 0};
  const struct {
    std::string_view id;
    SideGroup group;
    std::vector<std::uint64_t> present;
    std::uint32_t depth;
    std::uint32_t hit;
  } rows[] = {
      {"report 26, worker 1: the last window is there", window(8), {1, 2, 4, 5}, 5, 5},
      {"report 26, worker 2: the prefix shrinks", window(8), {1, 2, 3}, 5, 3},
      {"report 26, worker 3: the window goes further", window(8), {1, 2, 3, 4, 5}, 3, 3},
      {"report 26, worker 4: nothing", window(8), {}, 5, 0},
      {"a hole in the last window", window(8), {1, 2, 4}, 5, 2},
      {"a later window survives a hole before it", window(8), {4, 5}, 6, 5},
      {"a window of w tokens looks back w - 1", window(9), {4, 5}, 5, 5},
      {"... and one more", window(10), {4, 5}, 5, 0},
      {"a prefix shorter than the window", window(100), {1, 2}, 5, 2},
      {"a window of one token looks back at nothing", window(1), {}, 5, 5},
      {"an unknown window needs all", window(0), {1, 2, 4, 5}, 5, 2},
      {"larger blocks end where they end", window(8, 8), {2, 4}, 5, 4},
      {"two larger blocks", window(10, 8), {2, 6}, 6, 2},
      {"smaller blocks: those at our ends", window(8, 2), {4, 5}, 5, 5},
      {"blocks that never end with ours", window(8, 6), {1, 2, 3, 4, 5}, 5, 0},
      {"a checkpoint", mamba(kBlockSize), {3}, 5, 3},
      {"the last of two", mamba(kBlockSize), {2, 5}, 5, 5},
      {"beyond the prefix", mamba(kBlockSize), {5}, 4, 0},
      {"of larger blocks", mamba(8), {2, 4}, 5, 4},
      {"of an unknown size", mamba(0), {2, 4}, 5, 4},
      {"every block", every, {1, 2, 3, 4, 5}, 5, 5},
      {"every block up to a hole", every, {1, 2, 4, 5}, 5, 2},
      {"every block but the first", every, {2, 3}, 3, 0},
      {"an unknown kind", {kGroup, SideRule::kNever, 0, 0}, {1, 2, 3}, 3, 0},
      {"nothing held", window(8), {1}, 0, 0},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    SideGroups sides(kBlockSize, {});
    sides.Declare(row.group);
    sides.Store(kGroup, Tier::kDevice, Copies(row.present));
    StoreChain(sides, 8);
    EXPECT_EQ(HitOf(sides, row.depth), row.hit);
  }
}

TEST(SideGroups, AllGroupsMustAgree) {
  SideGroups sides(kBlockSize, {});
  sides.Declare({1, SideRule::kWindow, kBlockSize, 8});
  sides.Declare({2, SideRule::kCheckpoint, kBlockSize, 0});
  sides.Declare({3, SideRule::kEvery, 8, 0});
  StoreChain(sides, 8);
  sides.Store(1, Tier::kDevice, Copies({1, 2, 3, 4, 6, 7, 8}));
  sides.Store(2, Tier::kDevice, Copies({3, 4, 7}));
  EXPECT_EQ(HitOf(sides, 8), 0u);
  sides.Store(3, Tier::kDevice, Copies({2, 4, 6, 8}));
  EXPECT_EQ(HitOf(sides, 8), 4u) << "7 is in the middle of a block of the third group";
  sides.Remove(3, Tier::kDevice, Copies({2}));
  EXPECT_EQ(HitOf(sides, 8), 0u);
}

TEST(SideGroups, TheLastTokenOfAPromptIsComputedAnew) {
  SideGroups sides(kBlockSize, {});
  sides.Declare({1, SideRule::kCheckpoint, kBlockSize, 0});
  StoreChain(sides, 5);
  sides.Store(1, Tier::kDevice, Copies({2, 5}));
  EXPECT_EQ(sides.HitOf(Overlap(5), 5), 5u);
  EXPECT_EQ(sides.HitOf(Overlap(5), 4), 2u);
  EXPECT_EQ(sides.HitOf(Overlap(5), 0), 0u);
}

TEST(SideGroups, CopiesAreCountedPerGroupTierAndName) {
  SideGroups sides(kBlockSize, {});
  sides.Declare({1, SideRule::kCheckpoint, kBlockSize, 0});
  sides.Declare({2, SideRule::kWindow, kBlockSize, 2});
  StoreChain(sides, 1);
  const auto one = Copies({1});
  sides.Store(2, Tier::kDevice, one);
  sides.Store(1, Tier::kDevice, one);
  sides.Store(1, Tier::kDevice, one);
  sides.Store(1, Tier::kHostPinned, one);
  sides.Store(1, Tier::kDisk, one);
  EXPECT_EQ(sides.stats().blocks, 2u);
  sides.Remove(1, Tier::kDevice, one);
  EXPECT_EQ(HitOf(sides, 1), 1u);
  sides.Remove(1, Tier::kDevice, one);
  EXPECT_EQ(HitOf(sides, 1), 1u) << "host memory";
  sides.Remove(1, Tier::kHostPinned, one);
  EXPECT_EQ(HitOf(sides, 1), 0u);
  sides.Remove(1, Tier::kHostPinned, one);
  sides.Store(1, Tier::kHostPinned, one);
  EXPECT_EQ(HitOf(sides, 1), 1u) << "never counted below zero";

  sides.Store(1, Tier::kHostPinned, one);
  const SideCopy gone{EngineHash{1}, 0};
  sides.Remove(1, Tier::kHostPinned, std::span(&gone, 1));
  EXPECT_EQ(HitOf(sides, 1), 0u) << "the engine's word";
  sides.Store(1, Tier::kDevice, one);
  const SideCopy left{EngineHash{1}, 1};
  sides.Remove(1, Tier::kDevice, std::span(&left, 1));
  EXPECT_EQ(HitOf(sides, 1), 1u);

  sides.Store(1, Tier::kDevice, one);
  sides.ForgetCounts();
  sides.Remove(1, Tier::kDevice, one);
  EXPECT_EQ(HitOf(sides, 1), 0u) << "events were lost";
}

TEST(SideGroups, AClearEmptiesGroupsAndKeepsThemKnown) {
  SideGroups sides(kBlockSize, {});
  sides.Declare({1, SideRule::kWindow, kBlockSize, 8});
  StoreChain(sides, 2);
  sides.Store(1, Tier::kDevice, Copies({1, 2}));
  PlacementEvent clear;
  clear.kind = PlacementKind::kCleared;
  sides.ApplyMain(clear);
  StoreChain(sides, 2);
  EXPECT_EQ(HitOf(sides, 2), 0u);
  EXPECT_EQ(sides.stats().groups, 1u);
  EXPECT_EQ(sides.stats().blocks, 0u);
}

TEST(SideGroups, AWayBackThatIsNotKnownIsNoHit) {
  SideGroups::Options options;
  options.remembered_max = 1;
  SideGroups sides(kBlockSize, options);
  sides.Declare({1, SideRule::kWindow, kBlockSize, 8});
  StoreChain(sides, 3);
  sides.Store(1, Tier::kDevice, Copies({1, 2, 3}));
  const std::vector<EngineHash> names = {EngineHash{3}, EngineHash{2}};
  PlacementEvent removed;
  removed.kind = PlacementKind::kRemoved;
  removed.removed = names;
  sides.ApplyMain(removed);
  // 2 is remembered, for a copy that is announced by its name; 3 no longer.
  EXPECT_EQ(HitOf(sides, 2), 2u);
  EXPECT_EQ(HitOf(sides, 3), 0u);
}

TEST(SideGroups, BeyondTheLimitBlocksCountAsAbsent) {
  SideGroups::Options options;
  options.blocks_max = 2;
  SideGroups sides(kBlockSize, options);
  sides.Declare({1, SideRule::kCheckpoint, kBlockSize, 0});
  StoreChain(sides, 3);
  sides.Store(1, Tier::kDevice, Copies({1, 2, 3}));
  EXPECT_EQ(HitOf(sides, 2), 2u);
  EXPECT_EQ(HitOf(sides, 3), 0u);
  EXPECT_EQ(sides.stats().blocks, 2u);
  EXPECT_EQ(sides.stats().refused, 2u);
}

TEST(HybridRanks, ARankLearnsWhatItsIndexAlreadyHolds) {
  IndexSet indexes(IndexOptions{});
  const auto partition = *indexes.GetOrCreate({"m", "default"}, kBlockSize);
  const Rank rank{WorkerId{1}, 0};
  const Rank other{WorkerId{2}, 0};
  const RankSlot slot = *partition->index->AddRank(rank);
  const RankSlot other_slot = *partition->index->AddRank(other);
  const std::vector<PlacedBlock> blocks = {{EngineHash{11}, BlockHash{1}},
                                           {EngineHash{12}, BlockHash{2}}};
  PlacementEvent event;
  event.blocks = blocks;
  partition->index->Apply(slot, event);
  partition->index->Apply(other_slot, event);
  HybridRanks& hybrid = *partition->hybrid;
  EXPECT_TRUE(hybrid.empty());
  const auto sides = hybrid.FindOrAdd(rank, *partition->index, kBlockSize);
  EXPECT_EQ(hybrid.FindOrAdd(rank, *partition->index, kBlockSize), sides);
  sides->Declare({1, SideRule::kWindow, kBlockSize, 8});
  sides->Store(1, Tier::kDevice, Copies({11, 12}));

  OverlapScores scores;
  partition->index->Match(std::vector<BlockHash>{BlockHash{1}, BlockHash{2}}, {}, scores);
  EXPECT_EQ(hybrid.HitOf(scores.at(slot), 2), 2u);
  EXPECT_EQ(hybrid.HitOf(scores.at(other_slot), 2), std::nullopt);
  hybrid.Drop(rank);
  EXPECT_EQ(hybrid.HitOf(scores.at(slot), 2), std::nullopt);
  EXPECT_TRUE(hybrid.empty());
}

// Blocks that are not matched when the first side event comes may be later.
TEST(HybridRanks, ARankLearnsWhatItsIndexDoesNotMatchYet) {
  const std::vector<PlacedBlock> chain = {{EngineHash{11}, BlockHash{1}},
                                          {EngineHash{12}, BlockHash{2}},
                                          {EngineHash{13}, BlockHash{3}}};
  const auto stored = [&](std::size_t first, std::size_t end) {
    PlacementEvent event;
    event.blocks = std::span(chain).subspan(first, end - first);
    if (first > 0) event.parent = chain[first - 1].engine;
    return event;
  };
  const auto removed = [](const std::vector<EngineHash>& names) {
    PlacementEvent event;
    event.kind = PlacementKind::kRemoved;
    event.removed = names;
    return event;
  };
  const std::vector<EngineHash> root = {EngineHash{11}};
  const std::vector<EngineHash> leaf = {EngineHash{13}};
  PlacementEvent host;
  host.tier = Tier::kHostPinned;
  host.hash_only = true;
  host.blocks = std::span(chain).subspan(2, 1);
  const struct {
    std::string_view id;
    std::vector<PlacementEvent> before;
    PlacementEvent after;
  } rows[] = {
      {"blocks that wait for their parent", {stored(1, 3)}, stored(0, 1)},
      {"blocks behind a hole", {stored(0, 3), removed(root)}, stored(0, 1)},
      {"a block that comes back by its name", {stored(0, 3), removed(leaf)}, host},
      {"a leaf after a hole was closed", {stored(0, 1), stored(1, 2)}, stored(2, 3)},
  };
  for (const std::size_t shards : {1u, 2u}) {
    for (const auto& row : rows) {
      SCOPED_TRACE(row.id);
      IndexSet indexes(IndexOptions{}, shards);
      const auto partition = *indexes.GetOrCreate({"m", "default"}, kBlockSize);
      const Rank rank{WorkerId{1}, 0};
      const RankSlot slot = *partition->index->AddRank(rank);
      for (const PlacementEvent& event : row.before)
        partition->index->Apply(slot, event);
      const auto sides = partition->hybrid->FindOrAdd(rank, *partition->index, kBlockSize);
      sides->Declare({1, SideRule::kEvery, kBlockSize, 0});
      sides->Store(1, Tier::kDevice, Copies({11, 12, 13}));
      partition->index->Apply(slot, row.after);
      sides->ApplyMain(row.after);
      OverlapScores scores;
      partition->index->Match(std::vector<BlockHash>{BlockHash{1}, BlockHash{2}, BlockHash{3}}, {},
                              scores);
      EXPECT_EQ(scores.at(slot).depth(), 3u);
      EXPECT_EQ(partition->hybrid->HitOf(scores.at(slot), 3), 3u);
    }
  }
}

}  // namespace
}  // namespace kvr::index
