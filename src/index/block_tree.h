// The first index of the product: a tree of single blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "index/hash_mix.h"
#include "index/name_table.h"
#include "index/node_store.h"
#include "index/options.h"
#include "index/pending_pool.h"
#include "index/prefix_index.h"

namespace kvr::index {

// A node is a block after a prefix; one hash table finds a node's child; each node has a bitmap of
// holders a tier. A rank holds a block until it is removed, reachable or not, so that an answer is
// the longest prefix held. A node lives while a rank knows its name or a child hangs on it.
//
// Costs: Match O(depth × (1 lookup + slots/64)) and once a tier for each rank that leaves or
// changes it; Apply O(blocks); Cleared and RemoveRank O(the most the rank ever held).
//
// One lock around all: queries share it, each update has it alone, so writers of different ranks
// take turns, a large clear delays queries, and queries that never pause can delay writers.
class BlockTree final : public PrefixIndex {
 public:
  // `options` must be valid.
  explicit BlockTree(const IndexOptions& options);

  Result<RankSlot> AddRank(Rank rank) override KVR_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<RankSlot> FindRank(Rank rank) const override KVR_EXCLUDES(mutex_);
  bool RemoveRank(Rank rank) override KVR_EXCLUDES(mutex_);
  ApplyResult Apply(RankSlot slot, const PlacementEvent& event) override KVR_EXCLUDES(mutex_);
  void Match(std::span<const BlockHash> blocks, const MatchOptions& options,
             OverlapScores& scores) const override KVR_EXCLUDES(mutex_);
  void Dump(const std::function<void(const PlacementEvent&)>& emit) const override
      KVR_EXCLUDES(mutex_);
  [[nodiscard]] IndexStats Stats() const override KVR_EXCLUDES(mutex_);
  [[nodiscard]] RankStats StatsOf(RankSlot slot) const override KVR_EXCLUDES(mutex_);

 private:
  class Walk;
  class RankDump;

  struct RankBlocks {
    RankBlocks(Rank rank_in, RankSlot slot_in, const IndexOptions& options)
        : rank(rank_in),
          slot(Raw(slot_in)),
          names(options.hash_seed),
          pending(options.pending_blocks_max) {}

    const Rank rank;
    const std::uint32_t slot;
    NameTable names;
    PendingPool pending;
    std::array<std::uint64_t, kTierCount> held{};
    std::uint32_t events = 0;  // wraps; only told apart from the last ones
  };

  ApplyResult Store(RankBlocks& rank, const PlacementEvent& event) KVR_REQUIRES(mutex_);
  ApplyResult Remove(RankBlocks& rank, const PlacementEvent& event) KVR_REQUIRES(mutex_);
  bool RemoveOne(RankBlocks& rank, EngineHash name, Tier tier) KVR_REQUIRES(mutex_);
  void Clear(RankBlocks& rank) KVR_REQUIRES(mutex_);

  // Enters the block under this name in these tiers; true when a tier was new.
  bool Hold(RankBlocks& rank, NodeId node, EngineHash name, unsigned tiers, bool eligible)
      KVR_REQUIRES(mutex_);
  // Places what waits for `name`, which the rank holds at `node`.
  void Wake(RankBlocks& rank, EngineHash name, NodeId node) KVR_REQUIRES(mutex_);
  void Drop(RankBlocks& rank, NameId id, unsigned tiers) KVR_REQUIRES(mutex_);

  // Makes `name` what the rank calls the node; not its name yet.
  NameId AddName(RankBlocks& rank, EngineHash name, NodeId node) KVR_REQUIRES(mutex_);
  void EraseName(RankBlocks& rank, NameId id) KVR_REQUIRES(mutex_);
  // Undoes what AddName did to the node; frees it with its last reference.
  void LetGo(const RankBlocks& rank, NodeId node) KVR_REQUIRES(mutex_);

  // What the rank calls the node, if it has a name for it.
  [[nodiscard]] EngineHash NameOf(std::uint32_t slot, NodeId node) const
      KVR_REQUIRES_SHARED(mutex_);

  const IndexOptions options_;
  mutable SharedMutex mutex_;
  NodeStore nodes_ KVR_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<RankBlocks>> slots_ KVR_GUARDED_BY(mutex_);
  std::set<std::uint32_t> free_slots_ KVR_GUARDED_BY(mutex_);  // below slots_.size()
  std::unordered_map<Rank, RankSlot> ranks_ KVR_GUARDED_BY(mutex_);
  // (node, slot) → the rank's name where it differs from the node's.
  std::unordered_map<std::uint64_t, EngineHash, SeededHash> renamed_ KVR_GUARDED_BY(mutex_);
  IndexStats counts_ KVR_GUARDED_BY(mutex_);           // those kept up to date: see Stats
  std::size_t more_words_ KVR_GUARDED_BY(mutex_) = 0;  // in holder sets, on the heap
};

}  // namespace kvr::index
