// An index in parts, for more than one writer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "base/epoch.h"
#include "base/mutex.h"
#include "index/options.h"
#include "index/prefix_index.h"
#include "index/run_arena.h"
#include "index/stable_array.h"

namespace kvr::index {

// Each rank lives in one of several RunArenas, that with the fewest ranks when it came. Updates of
// ranks in different shards do not wait for each other; a query asks every shard and puts the
// answers together, which is exact, because no two shards have a rank in common.
//
// What ranks of different shards share is kept once in each of their shards. Each shard has its
// part of blocks_max and memory_limit.
//
// Costs: Match as that of RunArena, once for each shard, and O(ranks scored). AddRank, RemoveRank,
// FindRank and Ranks wait for each other, so for the sweep of a rank that is removed.
class ShardedIndex : public PrefixIndex {
 public:
  // `options`, those of the whole, must be valid; `shards` is 1 to kShardsMax.
  ShardedIndex(const IndexOptions& options, std::size_t shards);

  Result<RankSlot> AddRank(Rank rank) override KVR_EXCLUDES(changes_);
  [[nodiscard]] std::optional<RankSlot> FindRank(Rank rank) const override KVR_EXCLUDES(changes_);
  bool RemoveRank(Rank rank) override KVR_EXCLUDES(changes_);
  ApplyResult Apply(RankSlot slot, const PlacementEvent& event) override;
  void Match(std::span<const BlockHash> blocks, const MatchOptions& options,
             OverlapScores& scores) const override;
  void FindBlocks(std::span<const SequenceHash> sequence,
                  std::vector<BlockHash>& blocks) const override;
  [[nodiscard]] std::vector<Rank> Ranks() const override KVR_EXCLUDES(changes_);
  void CopyRank(Rank rank, RankCopy& copy) const override;
  void CopyKnown(Rank rank, RankCopy& copy) const override;
  [[nodiscard]] IndexStats Stats() const override;
  [[nodiscard]] RankStats StatsOf(RankSlot slot) const override;

 private:
  struct Shard {
    explicit Shard(const IndexOptions& options) : arena(options) {}

    RunArena arena;
    StableArray<std::atomic<std::uint32_t>> slots;  // of the whole, by slot of the arena
    std::size_t ranks = 0;                          // under changes_
  };
  // Where the rank of a slot lives; 0 is nowhere.
  struct Home {
    std::atomic<Shard*> shard{nullptr};
    std::atomic<std::uint32_t> slot{0};
  };

  [[nodiscard]] Shard* ShardOf(Rank rank, RankSlot& slot) const;

  const IndexOptions options_;
  std::vector<std::unique_ptr<Shard>> shards_;
  // Queries are inside while they turn the arenas' slots into ours.
  Epoch epoch_;
  std::atomic<std::uint32_t> slots_end_{0};
  StableArray<Home> homes_;  // by slot

  mutable Mutex changes_;                                        // of who has which slot
  std::set<std::uint32_t> free_slots_ KVR_GUARDED_BY(changes_);  // below slots_end_
};

inline constexpr std::size_t kShardsMax = 64;

// One RunArena, or with more than one shard a ShardedIndex.
std::unique_ptr<PrefixIndex> MakeIndex(const IndexOptions& options, std::size_t shards);

}  // namespace kvr::index
