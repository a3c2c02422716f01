// The index of the product: runs of blocks, and queries without locks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/epoch.h"
#include "base/mutex.h"
#include "index/fair_mutex.h"
#include "index/options.h"
#include "index/pending_pool.h"
#include "index/prefix_index.h"
#include "index/private_names.h"
#include "index/remembered_blocks.h"
#include "index/run_set.h"
#include "index/run_state.h"
#include "index/run_store.h"
#include "index/stable_array.h"

namespace kvr::index {

// Blocks that follow each other without a branch share one run: a column of block hashes, a column
// of names, and a few words that say who holds it. A rank holds a block until it is removed,
// reachable or not, so that an answer is the longest prefix held.
//
// Updates take turns. A query takes no lock as a rule: it walks states that never change, one a
// run, each published whole. So it sees of an event either what a run was before or what it is
// after, and of two runs maybe one of each. Where runs are split or joined meanwhile, and it cannot
// go on, it looks again; when that happens kLooksMax times, it takes its turn among the updates,
// which is counted. So what is held throughout is always found. With a memory limit it notes, at
// most once a tick of the clock, that a run was used.
//
// Costs: Match O(blocks / 8 + runs walked × slots / 64), and for each rank that holds a part of a
// run that it leaves the others in; Apply O(blocks) and O(slots / 64) for each run it changes, and
// for a run it splits a look at each child and a move of those of the half that has fewer;
// Cleared, RemoveRank and Dump O(runs of the rank). Cleared and RemoveRank let other updates in
// between; RemoveRank also waits for the queries under way.
//
// What an update replaces is freed once the queries under way are done. That has no limit of its
// own: it is as much as updates replace while the slowest of these queries runs, or is stopped
// amid; it is counted, as `retired`, and an update with a memory limit frees what it can of it
// first.
//
// With a memory limit, an update that passes it makes room: the rank that holds most gives up its
// least recently used leaves, blocks that no others hang on, and whoever shares them loses them,
// too. A leaf is used when a query ends in its run, or a store reaches it.
class RunArena final : public PrefixIndex {
 public:
  // `options` must be valid.
  explicit RunArena(const IndexOptions& options);

  Result<RankSlot> AddRank(Rank rank) override KVR_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<RankSlot> FindRank(Rank rank) const override KVR_EXCLUDES(mutex_);
  bool RemoveRank(Rank rank) override KVR_EXCLUDES(mutex_);
  ApplyResult Apply(RankSlot slot, const PlacementEvent& event) override KVR_EXCLUDES(mutex_);
  void Match(std::span<const BlockHash> blocks, const MatchOptions& options,
             OverlapScores& scores) const override KVR_EXCLUDES(mutex_);
  void MatchMany(std::span<const std::span<const BlockHash>> queries, const MatchOptions& options,
                 std::span<OverlapScores> scores) const override KVR_EXCLUDES(mutex_);
  void FindBlocks(std::span<const SequenceHash> sequence,
                  std::vector<BlockHash>& blocks) const override KVR_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<Rank> Ranks() const override KVR_EXCLUDES(mutex_);
  void CopyRank(Rank rank, RankCopy& copy) const override KVR_EXCLUDES(mutex_);
  void CopyKnown(Rank rank, RankCopy& copy) const override KVR_EXCLUDES(mutex_);
  [[nodiscard]] IndexStats Stats() const override KVR_EXCLUDES(mutex_);
  [[nodiscard]] RankStats StatsOf(RankSlot slot) const override KVR_EXCLUDES(mutex_);

 private:
  // Looks of a query before it waits for its turn among the updates. A change of shape that moves
  // few children is over after some of them.
  static constexpr std::uint64_t kLooksMax = 64;

  class Walk;
  class RankDump;
  class Removal;
  class Eviction;

  // A leaf that may have to go: still there, and not used since.
  struct Victim {
    RunId run = kRootRun;
    std::uint64_t used_at = 0;
  };
  struct RankBlocks {
    RankBlocks(Rank rank_in, std::uint32_t slot_in, const IndexOptions& options)
        : rank(rank_in),
          slot(slot_in),
          names(options.hash_seed),
          pending(options.pending_blocks_max) {}

    const Rank rank;
    const std::uint32_t slot;
    // A block that the rank knows goes by its common name, unless the run has an alias for the
    // rank; each alias is in here. So a name that is in here leads nowhere else for this rank.
    PrivateNames names;
    RememberedBlocks remembered;
    PendingPool pending;
    RunSet runs;                  // where it has something in a tier, or remembers something
    std::vector<Victim> victims;  // least recently used last
    std::array<std::uint64_t, kTierCount> held{};
    std::uint64_t memberships = 0;  // the sum
    std::uint64_t evicted = 0;      // see RankStats
    std::size_t counted_bytes = 0;  // in rank_bytes_
    std::size_t unchecked = 0;      // names remembered since KeepIdle looked
    bool sweeping = false;          // `runs` is what it leaves yet; all else is empty

    [[nodiscard]] std::size_t bytes() const;
  };
  // The rank of a slot, for queries.
  struct RankCell {
    std::atomic<std::uint64_t> worker{0};
    std::atomic<std::uint32_t> dp_rank{0};
  };

  // What a store says of whether its blocks are eligible; see PrefixIndex.
  enum class Claim : std::uint8_t {
    kIneligible,
    kEligible,  // unless another store of them was not
    kNothing,
    kEligibleAnyway
  };
  // Looks for an answer until one is sure. `look(of_one_shape)` finds one and says whether it is:
  // because nothing is missing, or because of_one_shape() says that no run changed its shape.
  template <typename Look>
  void Ask(const Look& look) const KVR_EXCLUDES(mutex_);

  static Claim ClaimOf(bool eligible) { return eligible ? Claim::kEligible : Claim::kIneligible; }

  ApplyResult Store(RankBlocks& rank, const PlacementEvent& event) KVR_REQUIRES(mutex_);
  ApplyResult StoreByName(RankBlocks& rank, const PlacementEvent& event) KVR_REQUIRES(mutex_);
  ApplyResult Remove(RankBlocks& rank, const PlacementEvent& event) KVR_REQUIRES(mutex_);
  // Takes everything from the rank. Lets others in between.
  void Clear(RankBlocks& rank) KVR_REQUIRES(mutex_);
  void Leave(RankBlocks& rank, RunId run) KVR_REQUIRES(mutex_);
  void Wait(RankBlocks& rank, PendingBlock block, ApplyResult& result) KVR_REQUIRES(mutex_);
  // Places what waits for `name`, which the rank holds at `place`.
  void Wake(RankBlocks& rank, EngineHash name, BlockPlace place, ApplyResult& result)
      KVR_REQUIRES(mutex_);

  // Enters a chain from `at` on, and moves `at` behind it. True when a block was new to a tier.
  bool Place(RankBlocks& rank, BlockPlace& at, std::span<const PlacedBlock> blocks, unsigned tiers,
             Claim claim) KVR_REQUIRES(mutex_);
  // The same for blocks that are there, all in one run.
  bool HoldNamed(RankBlocks& rank, BlockPlace at, std::span<const PlacedBlock> blocks,
                 unsigned tiers, Claim claim) KVR_REQUIRES(mutex_);
  bool Hold(RankBlocks& rank, RunId run, Stretch blocks, unsigned tiers, Claim claim)
      KVR_REQUIRES(mutex_);
  // Before the blocks are in the store's tier.
  static void NoteClaim(RunDraft& draft, std::uint32_t slot, Stretch blocks, Stretch run,
                        Claim claim);
  // Where the rank holds the block, both are eligible or none is.
  void AgreeWithHeld(const RankBlocks& rank, PendingBlock& waiting) KVR_REQUIRES(mutex_);
  void Drop(RankBlocks& rank, Tier tier, const RememberedBlocks::Dropped& dropped)
      KVR_REQUIRES(mutex_);
  void Remember(RankBlocks& rank, const RememberedBlocks::Dropped& dropped) KVR_REQUIRES(mutex_);
  void ForgetOldest(RankBlocks& rank, std::size_t count) KVR_REQUIRES(mutex_);
  // Forgets names of the rank for which too much is kept that nobody holds.
  void KeepIdle(RankBlocks& rank) KVR_REQUIRES(mutex_);
  [[nodiscard]] std::uint64_t IdleOf(const RankBlocks& rank) const KVR_REQUIRES(mutex_);
  // Whether a store may be entered. Blocks that are only remembered give way.
  bool MakeRoomFor(const RankBlocks& rank, const PlacementEvent& store) KVR_REQUIRES(mutex_);
  // Of a chain that begins at `at`, how many are not there.
  [[nodiscard]] std::size_t CountNew(BlockPlace at, std::span<const PlacedBlock> blocks) const
      KVR_REQUIRES(mutex_);
  void Forget(RankBlocks& rank, RunId run, Stretch blocks) KVR_REQUIRES(mutex_);
  void ForgetNames(RankBlocks& rank, RunId run, Stretch blocks) KVR_REQUIRES(mutex_);

  // Names. A rank knows a block while it holds it in a tier or remembers it.
  [[nodiscard]] bool Knows(std::uint32_t slot, BlockPlace place) const KVR_REQUIRES(mutex_);
  [[nodiscard]] bool InTier(std::uint32_t slot, BlockPlace place) const KVR_REQUIRES(mutex_);
  // The block that the common name leads to, if the rank knows it by that name.
  [[nodiscard]] std::optional<BlockPlace> FindCommon(const RankBlocks& rank, EngineHash name) const
      KVR_REQUIRES(mutex_);
  // The newest block of this name in a tier; failing that, and unless `held_only`, the newest.
  [[nodiscard]] std::optional<BlockPlace> Find(const RankBlocks& rank, EngineHash name,
                                               bool held_only) const KVR_REQUIRES(mutex_);
  // Appends the blocks of the run that the slot knows, but for one whose parent it does not.
  void AppendKnown(std::uint32_t slot, RunId run, RankCopy& copy) const KVR_REQUIRES(mutex_);
  // Makes `name` what the rank calls the block, and the block the newest of that name.
  void SetName(RankBlocks& rank, BlockPlace place, EngineHash name) KVR_REQUIRES(mutex_);
  [[nodiscard]] EngineHash NameOf(std::uint32_t slot, BlockPlace place) const KVR_REQUIRES(mutex_);
  // Of all that know a block of the run. Replaces `slots`.
  void FindSlots(RunId run, std::vector<std::uint32_t>& slots) const KVR_REQUIRES(mutex_);
  void OnMoved(RunId from, RunId to, Stretch blocks) KVR_REQUIRES(mutex_);

  // Memory.
  [[nodiscard]] std::size_t Bytes() const KVR_REQUIRES(mutex_);
  // Without what is freed as soon as the queries under way are done.
  [[nodiscard]] std::size_t LiveBytes() const KVR_REQUIRES(mutex_);
  void CountBytes(RankBlocks& rank) KVR_REQUIRES(mutex_);
  void Tick() KVR_REQUIRES(mutex_);
  void KeepLimit() KVR_REQUIRES(mutex_);
  bool DropPending(std::size_t bytes) KVR_REQUIRES(mutex_);
  void Evict(RunId run, Stretch leaf) KVR_REQUIRES(mutex_);

  const IndexOptions options_;

  // For queries, without the lock.
  Epoch epoch_;
  RunDirectory directory_;
  StableArray<RankCell> rank_cells_;
  std::atomic<std::uint32_t> slots_end_{0};
  // Another one, of all indexes, whenever a slot got its rank: see OverlapScores::NameRanks.
  std::atomic<std::uint64_t> ranks_key_{0};
  // Counts updates, coarsely, so that queries seldom have to note a new time. Stands still without
  // a memory limit.
  std::atomic<std::uint64_t> clock_{0};

  // Of queries that met a change of shape. On a line of its own: all queries read what is before
  // it.
  struct alignas(64) Unsure {
    std::atomic<std::uint64_t> looks{0};  // beyond the first of a query
    std::atomic<std::uint64_t> waits{0};  // queries that took their turn
    std::atomic<std::uint32_t> waiting{0};
  };
  mutable Unsure unsure_;

  alignas(64) mutable FairMutex mutex_;
  RunStore runs_ KVR_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<RankBlocks>> slots_ KVR_GUARDED_BY(mutex_);
  std::set<std::uint32_t> free_slots_ KVR_GUARDED_BY(mutex_);  // below slots_.size()
  std::unordered_map<Rank, RankSlot> ranks_ KVR_GUARDED_BY(mutex_);
  std::set<Rank> leaving_ KVR_GUARDED_BY(mutex_);  // RemoveRank is at work
  std::uint64_t ticks_ KVR_GUARDED_BY(mutex_) = 0;
  std::size_t rank_bytes_ KVR_GUARDED_BY(mutex_) = 0;
  std::vector<std::uint32_t> moved_ KVR_GUARDED_BY(mutex_);  // OnMoved's, reused
  std::uint64_t evicted_blocks_ KVR_GUARDED_BY(mutex_) = 0;
  std::uint64_t evicted_memberships_ KVR_GUARDED_BY(mutex_) = 0;
  std::uint64_t memberships_ KVR_GUARDED_BY(mutex_) = 0;
  std::uint64_t pending_dropped_ KVR_GUARDED_BY(mutex_) = 0;
  std::uint64_t name_conflicts_ KVR_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvr::index
