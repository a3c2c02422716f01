// Who holds which prefix: the interface of every index.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "index/rank_copy.h"
#include "model/ids.h"
#include "model/overlap.h"
#include "model/placement_event.h"
#include "model/tier.h"

namespace kvr::index {

// The outcome of one event. The names are the `status` label of the applied-events counter.
enum class ApplyStatus : std::uint8_t {
  kOk,
  kParentNotFound,   // stored under a parent, or without content, that the rank never announced:
                     // blocks wait (see Apply)
  kBlockNotFound,    // removed a block the rank does not hold, or one that was evicted; the event's
                     // other blocks are removed
  kInvalidSequence,  // a store that names its own parent: not applied
  kCapacity,         // a limit refused the blocks: not applied
};
inline constexpr std::array<std::string_view, 5> kApplyStatusNames = {
    "ok", "parent_block_not_found", "block_not_found", "invalid_block", "capacity_exhausted"};
constexpr std::string_view ApplyStatusName(ApplyStatus status) {
  return kApplyStatusNames[static_cast<std::size_t>(status)];
}

struct ApplyResult {
  ApplyStatus status = ApplyStatus::kOk;
  bool duplicate_store = false;      // nothing changed: every block was already held in that tier
  std::uint32_t waiting_blocks = 0;  // of this event: went to the pool
  // Of this or earlier events, with their content: the rank holds them, and the index had no room
  // for them to wait or to be placed.
  std::uint32_t dropped_blocks = 0;
};

struct RankStats {
  Rank rank;
  std::array<std::uint64_t, kTierCount> blocks{};  // held, per tier, reachable or not
  std::uint64_t pending_blocks = 0;                // waiting for their parent or their content
  // Held blocks, per tier, that gave way to the memory limit since the rank was last empty by its
  // own events. Not 0: the engine may hold more than answers say.
  std::uint64_t evicted = 0;
};

// What the heap of an index is used for.
inline constexpr std::size_t kHeapUseCount = 7;
inline constexpr std::array<std::string_view, kHeapUseCount> kHeapUseNames = {
    "columns",  // block hashes and names
    "states",   // who holds what
    "aliases",  // names of single ranks
    "names",    // the table of common names
    "tree",     // runs, and the tables that find them
    "ranks",    // what ranks wait for and remember, and where they hold something
    "retired"   // freed once the queries under way are done
};

struct IndexStats {
  std::uint64_t ranks = 0;
  std::uint64_t nodes = 0;        // distinct blocks that some rank holds
  std::uint64_t idle_nodes = 0;   // further blocks kept as the way to others, or for their name
  std::uint64_t memberships = 0;  // (rank, tier, block) triples
  std::uint64_t pending_blocks = 0;
  std::uint64_t pending_dropped = 0;  // gave way to newer ones since the start
  std::uint64_t name_conflicts = 0;   // stores that gave a rank's known name to another block
  std::uint64_t runs = 0;             // stretches of blocks without a branch
  std::uint64_t splits = 0;           // of runs, since the start
  std::uint64_t joins = 0;
  // Since the start: how often queries looked again because runs were split or joined meanwhile,
  // and how many waited for their turn among the updates in the end.
  std::uint64_t query_retries = 0;
  std::uint64_t query_waits = 0;
  // Gave way to the memory limit since the start, though held: distinct blocks, and (rank, tier,
  // block) triples.
  std::uint64_t evicted_blocks = 0;
  std::uint64_t evicted_memberships = 0;
  std::uint64_t bytes = 0;                              // heap in use, as counted
  std::array<std::uint64_t, kHeapUseCount> bytes_of{};  // by use
};

struct MatchOptions {
  bool device_only = false;     // skip the lower tiers
  bool device_holders = false;  // also count the holders of each depth
  // Only so many ranks, those with the deepest match; which among equals is not said. 0: all. For
  // users of the library that choose by the match alone: the router weighs it against load, so it
  // asks for all.
  std::uint32_t best = 0;
};

// Thread-safe. One rank's events come from one thread at a time; different ranks' may be applied at
// once. A query may run at any time. What an update under way changes it may see or not, block for
// block; it reports no block that the rank held neither before nor after it.
//
// A rank *holds* a block in a tier from a Stored until a Removed or Cleared of that tier; repeated
// stores change nothing. A match walks the request's blocks from the root: as long as the rank
// holds them in the device tier, from there in host_pinned, then disk, then external; each tier
// once. A rank that does not hold the first block in the device tier starts in the nearest tier
// that does.
//
// A block of a rank is *eligible* while every store of it was, since it was last in no tier of the
// rank: one that is not makes it ineligible for as long as it is held, and the first store of a
// block that is not held decides anew. A store by name only, which is as good as what told of the
// content, changes nothing of that; one that says `eligible` makes its blocks so whatever was said
// before. A block that waits counts as held.
//
// With a memory limit it may hold less: evicted blocks are as if they had been removed, until the
// engine announces them again.
class PrefixIndex {
 public:
  virtual ~PrefixIndex() = default;

  // Gives the rank a slot, or returns the one it has. kOverloaded when no slot is left.
  virtual Result<RankSlot> AddRank(Rank rank) = 0;

  // The slot the rank has, if any.
  [[nodiscard]] virtual std::optional<RankSlot> FindRank(Rank rank) const = 0;

  // Drops every block of the rank in all tiers and frees its slot. False when it had none. A query
  // that starts after the return does not report the rank.
  virtual bool RemoveRank(Rank rank) = 0;

  // Applies one event to a slot that AddRank returned and RemoveRank has not freed.
  //
  // Stored with an unknown parent, and hash-only blocks whose content was never announced, wait in
  // a bounded pool until the parent or content arrives; the oldest give way to newer ones. Until
  // then they are not matched. Removed and Cleared reach waiting blocks too. Removed keeps going
  // after a block it does not know. Cleared drops all tiers of the rank.
  virtual ApplyResult Apply(RankSlot slot, const PlacementEvent& event) = 0;

  // Fills `scores` with every rank that holds a leading part of `blocks`. Allocates nothing once
  // `scores` is warm.
  virtual void Match(std::span<const BlockHash> blocks, const MatchOptions& options,
                     OverlapScores& scores) const = 0;

  // Match of each query, `scores` in their order and as many, at once: an index may ask them in
  // step, so that they wait for memory together. For users of the library that have several queries
  // at hand, as replays do; the services answer each request as it comes.
  virtual void MatchMany(std::span<const std::span<const BlockHash>> queries,
                         const MatchOptions& options, std::span<OverlapScores> scores) const {
    for (std::size_t i = 0; i < queries.size(); ++i)
      Match(queries[i], options, scores[i]);
  }

  // Replaces `blocks` by the block hashes of the longest known prefix of a chain that is given by
  // its sequence hashes (hashing::ChainHashes), for Match to be asked with. A sequence hash does
  // not tell its block, so it is compared with those of the blocks that may come next; beyond
  // kBranchesMax of those the prefix ends.
  static constexpr std::size_t kBranchesMax = 65'536;
  virtual void FindBlocks(std::span<const SequenceHash> sequence,
                          std::vector<BlockHash>& blocks) const = 0;

  // All that have a slot, each once.
  [[nodiscard]] virtual std::vector<Rank> Ranks() const { return {}; }

  // Replaces `copy` by the blocks of the rank, of one moment; nothing for a rank without a slot.
  // Stores of them in order rebuild what an index that is empty knows of the rank. What waits in
  // the pool, or hangs behind a block the rank does not hold, is not copied; nor is, with all that
  // is behind it, a block that goes by the name of the block before it, see TellSharedNames.
  virtual void CopyRank(Rank rank, RankCopy& copy) const = 0;

  // As CopyRank, in no order, and with what is not dumped: blocks that wait for their parent,
  // blocks behind one that the rank does not hold, and those it holds no more and whose name is
  // kept, in runs of no tier. Without blocks behind one whose name is not kept. An index may give
  // less, but no less than CopyRank.
  virtual void CopyKnown(Rank rank, RankCopy& copy) const { CopyRank(rank, copy); }

  // Calls `emit` with Stored events that rebuild the index when applied in this order to an empty
  // one: what CopyRank has of each of Ranks() at the beginning, one rank after the other. Parents
  // come before children; of a rank without a name for several blocks, device events come before
  // the others, save blocks whose parent only a lower tier holds. One rank is held at a time.
  // `emit` runs without a lock.
  virtual void Dump(const std::function<void(const PlacementEvent&)>& emit) const;

  [[nodiscard]] virtual IndexStats Stats() const = 0;
  // Zero for a slot that is not in use.
  [[nodiscard]] virtual RankStats StatsOf(RankSlot slot) const = 0;
};

}  // namespace kvr::index
